#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Guard planning against getting slower: count instructions by callgrind, which no other load on the machine changes.

    bench/instructions.py build/release            fails where a command takes over a tenth more than recorded
    bench/instructions.py build/release --record   writes what is counted into bench/instructions.json

Counts hold for the compiler that is recorded with them; with another one nothing is compared. Exits with 77 where nothing can be: callgrind is missing, or the compiler is another.
"""
import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "bench/instructions.json"
ALLOWED = 1.1
SKIPPED = 77


def counted(command: list[str]) -> int:
    """Instructions of a whole command."""
    watched = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command]
    done = subprocess.run(watched, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not found:
        sys.exit(f"{' '.join(command)}: ended with {done.returncode}\n{done.stderr}")
    return int(found[1])


def compiler_of(build: Path) -> str:
    """The compiler and options that a build was configured with."""
    cache = dict(re.findall(r"^(\w+):\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE))
    version = subprocess.run([cache["CMAKE_CXX_COMPILER"], "-dumpfullversion"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    kind = cache["CMAKE_BUILD_TYPE"]
    return f"{Path(cache['CMAKE_CXX_COMPILER']).name} {version}, {kind} {cache[f'CMAKE_CXX_FLAGS_{kind.upper()}']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    if not shutil.which("valgrind"):
        print("skipped: valgrind is not installed")
        sys.exit(SKIPPED)
    recorded = json.loads(RECORD.read_text())
    compiler = compiler_of(options.build)
    if not options.record and compiler != recorded["compiler"]:
        print(f"skipped: the counts are of {recorded['compiler']}, the build is of {compiler}")
        sys.exit(SKIPPED)
    counts = {words: counted([str(options.build.resolve() / "heddle"), *words.split()]) for words in recorded["instructions"]}
    for words, count in counts.items():
        before = recorded["instructions"][words]
        print(f"{count:>14,}  {100 * (count / before - 1) if before else 0:+6.1f} %  heddle {words}")
    if options.record:
        RECORD.write_text(json.dumps({"compiler": compiler, "instructions": counts}, indent=2) + "\n")
    elif slower := [words for words, count in counts.items() if count > ALLOWED * recorded["instructions"][words]]:
        sys.exit(f"over {100 * (ALLOWED - 1):.0f} % more instructions than recorded: heddle {', heddle '.join(slower)}; find out why, or record them anew with --record")


if __name__ == "__main__":
    main()
