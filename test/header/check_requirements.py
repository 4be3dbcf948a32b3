"""Every public header includes heddle/base/requirements.hpp, directly or by way of others, before anything that is not ours.

Usage: check_requirements.py ROOT
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
headers = {str(path.relative_to(folder)): path for folder in (root / "include", *root.glob("adapters/*/include")) for path in folder.rglob("*.hpp")}
includes = {name: re.findall(r'^#include [<"](.+)[>"]', path.read_text(), re.MULTILINE) for name, path in headers.items()}
first = "heddle/base/requirements.hpp"


def reaches(name):
    """Whether the first header that is included leads there."""
    while name != first:
        if not includes.get(name):
            return False
        name = includes[name][0]
    return True


failed = sorted(name for name in headers if not reaches(name))
assert first in headers and len(headers) > 100
for name in failed:
    print(f"{name}: its first include does not lead to {first}")
sys.exit(bool(failed))
