"""Units that compile headers: in as few chains as cover all, each header of a chain including, by way of others, all before it.

A unit that includes a chain in order shows of each header that it compiles alone: what stands before it is what it includes itself.
What a header includes is declared alone, as where heddle::compiled is linked, and its own definitions are there. So a unit takes
seconds, and shows that definitions use what is declared.

Usage: units.py FOLDER OUT HEADER...: writes a unit a chain to the folder OUT, and prints their paths; headers are relative to FOLDER.
       units.py FOLDER HEADER: prints the unit of one header.
"""
import pathlib
import re
import sys


def direct_includes(folder, header):
    return re.findall(r"^\s*#\s*include\s*<(heddle/[^>]+)>", (folder / header).read_text(encoding="utf-8"), re.M)


def closures(folder, headers):
    """Of each header, all that it includes of the others, by way of others too."""
    direct = {h: [g for g in direct_includes(folder, h) if g in set(headers)] for h in headers}
    result = {}

    def closure(header):
        if header not in result:
            result[header] = set()
            for g in direct[header]:
                result[header] |= {g} | closure(g)
        return result[header]

    for h in headers:
        closure(h)
    return result


def chains(headers, below):
    """A least cover by chains: as many headers as can be have a header after them (Dilworth; a matching by augmenting paths)."""
    before = {}  # of a header, the one just before it

    def place(header, tried):
        for after in headers:
            if header in below[after] and after not in tried:
                tried.add(after)
                if after not in before or place(before[after], tried):
                    before[after] = header
                    return True
        return False

    for h in headers:
        place(h, set())
    followed = set(before.values())
    for last in headers:
        if last in followed:
            continue
        chain = [last]
        while chain[-1] in before:
            chain.append(before[chain[-1]])
        yield chain[::-1]


def text(folder, chain):
    lines = []
    for header in chain:
        lines += ["#undef HEDDLE_DEFINITIONS", "#define HEDDLE_DEFINITIONS 0"] if lines else ["#include <heddle/base/definitions.hpp>"]
        lines += [f"#include <{g}>" for g in direct_includes(folder, header)]
        lines += ["#undef HEDDLE_DEFINITIONS", "#define HEDDLE_DEFINITIONS 1", "#undef HEDDLE_INLINE", "#define HEDDLE_INLINE inline"]
        lines += [f"#include <{header}>"] * 2
    return "\n".join(lines) + "\n"


def write(path, content):
    """A file that does not change keeps its time."""
    if not path.exists() or path.read_text(encoding="utf-8") != content:
        path.write_text(content, encoding="utf-8")


def main():
    folder = pathlib.Path(sys.argv[1])
    if len(sys.argv) == 3:
        print(text(folder, sys.argv[2:]), end="")
        return
    out, headers = pathlib.Path(sys.argv[2]), sorted(sys.argv[3:])
    out.mkdir(parents=True, exist_ok=True)
    for chain in chains(headers, closures(folder, headers)):
        path = out / (re.sub(r"\W", "_", chain[-1]) + ".cpp")
        write(path, text(folder, chain))
        print(path)


if __name__ == "__main__":
    main()
