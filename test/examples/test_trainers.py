"""A trainer of examples/trainer on one device and on four processes has the same losses, and docs/howto/embed_in_a_trainer.md shows what differs.

Usage: test_trainers.py NAME SINGLE DISTRIBUTED MPIRUN..., from the repository root; `test_trainers.py NAME` prints the difference.
"""
import difflib
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path("docs/howto/embed_in_a_trainer.md")


def difference(name):
    sources = [pathlib.Path(f"examples/trainer/{name}/{kind}.cpp").read_text().splitlines(keepends=True) for kind in ("single", "distributed")]
    lines = list(difflib.unified_diff(*sources, "single.cpp", "distributed.cpp", n=2))
    return "".join(line.rstrip() + "\n" for line in lines)


def losses(command):
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    return [float(loss) for loss in re.findall(r"loss ([0-9.e+-]+)", output)]


def main(name, single=None, distributed=None, *mpirun):
    shown = difference(name)
    if single is None:
        return print(shown, end="")
    assert f"```diff\n{shown}```\n" in PAGE.read_text(), f"{PAGE} has not this block:\n{shown}"
    alone = losses([single])
    together = losses([*mpirun, "-n", "4", distributed, "examples/trainer/cluster.json"])
    print("losses", alone, together)
    assert len(alone) == len(together) > 1 and alone[-1] < 0.8 * alone[0]
    for one, other in zip(alone, together):
        assert abs(one - other) <= 1e-9 * abs(one), (one, other)


main(*sys.argv[1:])
