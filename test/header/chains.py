"""Headers in as few chains as cover all: each header of a chain includes, by way of others, all before it.

A unit that includes a chain in order shows of each header that it compiles alone: what stands before it is what it includes itself.

Usage: chains.py FOLDER HEADER..., headers relative to the folder. Prints a chain a line.
"""
import pathlib
import re
import sys


def closures(folder, headers):
    """Of each header, all that it includes of the others, by way of others too."""
    known = set(headers)
    direct = {h: [g for g in re.findall(r"^\s*#\s*include\s*<([^>]+)>", (folder / h).read_text(encoding="utf-8"), re.M) if g in known] for h in headers}
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


def main():
    folder, headers = pathlib.Path(sys.argv[1]), sorted(sys.argv[2:])
    for chain in chains(headers, closures(folder, headers)):
        print(*chain)


if __name__ == "__main__":
    main()
