"""What headers cost to include: lines after the preprocessor, and functions and classes that are instantiated though nobody uses any.

Usage: check_weight.py ROOT CLANG [--write]

weights.txt has a line for each: header, with or without definitions, lines, instantiations. Both depend on the standard library
too, so up to a tenth more is let pass. --write writes the lines anew.
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

root, clang = pathlib.Path(sys.argv[1]), sys.argv[2]
table = root / "test/header/weights.txt"
SLACK = 1.1
MODES = {"declarations": ["-DHEDDLE_COMPILED"], "definitions": []}


def weigh(entry):
    header, mode = entry
    with tempfile.TemporaryDirectory() as folder:
        source, trace = pathlib.Path(folder, "unit.cpp"), pathlib.Path(folder, "trace.json")
        source.write_text(f"#include <{header}>\n")
        command = [clang, "-std=c++20", f"-I{root / 'include'}", "-isystem", "/usr/include/eigen3", *MODES[mode], str(source)]
        text = subprocess.run([*command, "-E", "-P"], check=True, capture_output=True, text=True).stdout
        subprocess.run([*command, "-c", "-o", os.devnull, f"-ftime-trace={trace}"], check=True)
        counts = {event["name"]: event["args"]["count"] for event in json.loads(trace.read_text())["traceEvents"] if event["name"].startswith("Total Instantiate")}
    return text.count("\n"), sum(counts.values())


entries = [line.split() for line in table.read_text().splitlines()]
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    found = list(pool.map(weigh, [(header, mode) for header, mode, *_ in entries]))
if "--write" in sys.argv:
    table.write_text("".join(f"{header:40} {mode:12} {lines:7} {instantiations:6}\n" for (header, mode, *_), (lines, instantiations) in zip(entries, found)))
    sys.exit()
failed = False
for (header, mode, *limits), now in zip(entries, found):
    for what, limit, count in zip(("lines after the preprocessor", "instantiations"), map(int, limits), now):
        if count > SLACK * limit:
            print(f"{header}, {mode}: {count} {what}, expected at most {limit}; if that cannot be helped, check_weight.py --write")
            failed = True
sys.exit(failed)
