"""What headers include: first of all, directly or by way of others, heddle/base/requirements.hpp; and of the core's folders only their own and earlier ones.

Usage: check_includes.py ROOT
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
core = root / "include"
headers = {str(path.relative_to(folder)): path for folder in (core, *root.glob("adapters/*/include")) for path in folder.rglob("*.hpp")}
includes = {name: re.findall(r'^#include [<"](.+)[>"]', path.read_text(), re.MULTILINE) for name, path in headers.items()}
first = "heddle/base/requirements.hpp"
order = "base search program cluster theory cost plan balance pipeline synthesis planner execute".split()
# A library of its own, which knows nothing of training.
only = {"search": {"base", "search"}}


def reaches(name):
    """Whether the first header that is included leads there."""
    while name != first:
        if not includes.get(name):
            return False
        name = includes[name][0]
    return True


def folder(name):
    parts = name.split("/")
    return parts[1] if parts[0] == "heddle" and len(parts) > 2 else None


def complaints():
    for name, path in sorted(headers.items()):
        if not reaches(name):
            yield f"{name}: its first include does not lead to {first}"
        if not path.is_relative_to(core) or folder(name) is None:
            continue
        if folder(name) not in order:
            yield f"{name}: the folder has no place in the order {' '.join(order)}"
            continue
        allowed = only.get(folder(name), set(order[: order.index(folder(name)) + 1]))
        for other in includes[name]:
            if other.startswith("heddle/") and folder(other) not in allowed:
                yield f"{name}: includes {other}, expected headers of {', '.join(f for f in order if f in allowed)}"


assert first in headers and len(headers) > 100 and {folder(name) for name in headers} >= set(order)
failed = list(complaints())
for line in failed:
    print(line)
sys.exit(bool(failed))
