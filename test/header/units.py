"""Units that compile headers: in as few chains as cover all, each header of a chain including, by way of others, all that is read before it.

A unit that includes a chain in order shows of each header that it compiles alone: what stands before it is what its declarations
include themselves. What a header includes is declared alone, as where heddle::compiled is linked, and its own definitions are there.
So a unit takes seconds, and shows that definitions use what is declared.

Usage: units.py FOLDER OUT HEADER...: writes a unit a chain to the folder OUT, and prints their paths; headers are relative to FOLDER.
       units.py FOLDER HEADER: prints the unit of one header.
"""
import pathlib
import re
import sys


def direct_includes(folder, header):
    """What a header's declarations include, and what its definitions do."""
    declarations, _, definitions = (folder / header).read_text(encoding="utf-8").partition("#if HEDDLE_DEFINITIONS")
    return [re.findall(r"^\s*#\s*include\s*<(heddle/[^>]+)>", part, re.M) for part in (declarations, definitions)]


def may_follow(folder, headers):
    """Of each header, those whose unit it may go on: its declarations include, by way of others too, all that those include."""
    direct = {h: [[g for g in part if g in set(headers)] for part in direct_includes(folder, h)] for h in headers}
    declared = {}

    def closure(header):
        if header not in declared:
            declared[header] = set()
            for g in direct[header][0]:
                declared[header] |= {g} | closure(g)
        return declared[header]

    for h in headers:
        closure(h)
    defined = {h: declared[h].union(*({g} | declared[g] for g in direct[h][1])) for h in headers}
    return {h: {g for g in declared[h] if defined[g] <= declared[h]} for h in headers}


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


def text(chain):
    # Those that the unit itself includes have the level 1.
    level = ["#undef HEDDLE_DEFINITIONS", "#define HEDDLE_DEFINITIONS (__INCLUDE_LEVEL__ == 1)", "#undef HEDDLE_INLINE", "#define HEDDLE_INLINE inline"]
    return "\n".join(["#include <heddle/base/definitions.hpp>", *level, *(f"#include <{header}>" for header in chain for _ in range(2))]) + "\n"


def write(path, content):
    """A file that does not change keeps its time."""
    if not path.exists() or path.read_text(encoding="utf-8") != content:
        path.write_text(content, encoding="utf-8")


def main():
    folder = pathlib.Path(sys.argv[1])
    if len(sys.argv) == 3:
        print(text(sys.argv[2:]), end="")
        return
    out, headers = pathlib.Path(sys.argv[2]), sorted(sys.argv[3:])
    out.mkdir(parents=True, exist_ok=True)
    for chain in chains(headers, may_follow(folder, headers)):
        path = out / (re.sub(r"\W", "_", chain[-1]) + ".cpp")
        write(path, text(chain))
        print(path)


if __name__ == "__main__":
    main()
