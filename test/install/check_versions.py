#!/usr/bin/env python3
"""check_versions.py ROOT: whatever names the version, in the tree of sources ROOT, names the one in heddle/base/version.hpp: the PyTorch
package, the citation, the page on versions, and the tag of the commit that is checked out, if it has one of a release."""
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(sys.argv[1])
version = re.search(r'library_version = "(.*)"', (root / "include/heddle/base/version.hpp").read_text())[1]
problems = []
for name, pattern in (("adapters/pytorch/pyproject.toml", r'^version = "(.*)"$'), ("docs/citation.md", r"^  version = \{(.*)\},$"),
                      ("docs/versioning.md", r"this is (\d+\.\d+\.\d+)"), ("docs/versioning.md", r"tagged v(\d+\.\d+\.\d+)")):
    found = re.findall(pattern, (root / name).read_text(), re.MULTILINE)
    if found != [version]:
        problems.append(f"{name}: expected version {version}, found {', '.join(found) or 'none'}")
try:  # sources that are no checkout have no tags
    tags = subprocess.run(["git", "-C", str(root), "tag", "--points-at", "HEAD"], capture_output=True, text=True, check=False).stdout.split()
except FileNotFoundError:
    tags = []
for tag in tags:
    if re.fullmatch(r"v\d+\.\d+\.\d+", tag) and tag != f"v{version}":
        problems.append(f"the commit is tagged {tag}, and its version is {version}")
sys.exit("\n".join(problems) or 0)
