#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Measure what bench/figures.json lists, and write it as one table and as JSON.

    bench/figures.py build/release --out figures.md --json figures.json [--data DIR] [--only PROGRAM ...]

Each program runs once, one after the other; the patterns and benchmarks of the list say which of its figures are taken, and what was aimed at and published for them. What needs the
reference data (the environment variable HEDDLE_REFERENCE_DATA, or --data) is left out without it.
"""
import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REDUCTIONS = {"max": max, "min": min, "sum": sum, "only": lambda values: values[0]}
COMPILER = "g++"


@dataclass
class Run:
    """What a program printed, or why it has nothing to say."""
    text: str = ""
    problem: str = ""


def compiled(program: dict) -> Run:
    """CPU seconds and memory of compiling a file or a line without optimisation."""
    is_line = program["compile"].startswith("#include")
    source = ["-x", "c++", "-"] if is_line else [str(ROOT / program["compile"])]
    folders = [f"-I{path}" for path in [ROOT / "include", *sorted(ROOT.glob("adapters/*/include"))]]
    # Debian keeps Eigen's and CLP's headers in folders of their own.
    command = [COMPILER, "-std=c++20", "-O0", *program["flags"], *folders, "-isystem/usr/include/eigen3", "-isystem/usr/include/coin", "-c", "-o", os.devnull, *source]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    child.stdin.write(program["compile"] + "\n" if is_line else "")
    child.stdin.close()
    problem = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        return Run(problem=problem.splitlines()[0] if problem else "does not compile")
    return Run(f"{usage.ru_utime + usage.ru_stime:.1f} s, {usage.ru_maxrss / 1e3:.0f} MB\n")


def executed(program: dict, places: dict[str, str]) -> Run:
    """What a command printed, or wrote where the list says that it writes."""
    if program.get("needs") == "data" and not places["data"]:
        return Run(problem="needs the reference data")
    if "cluster" in program:
        cluster = json.loads((ROOT / f"examples/clusters/{program['cluster']['of']}.json").read_text())
        cluster["machines"][0]["count"] = program["cluster"]["machines"]
        Path(program["command"][-1].format(**places)).write_text(json.dumps(cluster))
    environment = os.environ | ({"HEDDLE_REFERENCE_DATA": places["data"]} if places["data"] else {})
    command = [part.format(**places) for part in program["command"]]
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        return Run(problem=f"{command[0]} is not built")
    text = Path(program["reads"].format(**places)).read_text() if "reads" in program else done.stdout
    return Run(text) if text else Run(problem=(done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1])


def values_of(figure: dict, text: str) -> list[float]:
    """The numbers that a figure is made of."""
    if "pattern" in figure:
        found = re.finditer(figure["pattern"], text, re.MULTILINE)
        return [float(number) for match in found for number in match.groups()]
    runs = json.loads(text[text.index("{"):])["benchmarks"]
    return [run[figure["take"]] for run in runs if re.fullmatch(figure["benchmark"], run["name"]) and figure["take"] in run]


def rounded(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def row_of(figure: dict, run: Run) -> dict:
    """A figure with its value and whether it is as aimed at, or with what was in the way."""
    row = {key: figure[key] for key in ("group", "figure", "unit", "published", "by") if key in figure}
    row |= {"aim": figure["aim"]} if "aim" in figure else {"at_least": figure["least"]} if "least" in figure else {}
    if run.problem:
        return row | {"problem": run.problem}
    try:
        values = values_of(figure, run.text)
    except (ValueError, KeyError) as error:
        return row | {"problem": f"is not as expected: {error}"}
    if not values:
        return row | {"problem": "was not printed"}
    value = REDUCTIONS[figure.get("of", "only")](values)
    row["value"] = value
    if "aim" in figure or "least" in figure:
        row["met"] = value <= figure["aim"] if "aim" in figure else value >= figure["least"]
    return row


def table(rows: list[dict], machine: dict[str, str]) -> str:
    lines = ["# Figures", "", f"Made by `bench/run.sh` on {machine['processor']}, {machine['cores']} cores; {machine['compiler']}; revision {machine['revision']}. CPU times are of one core.", ""]
    lines += ["| figure | measured | aim | published | by |", "|---|---:|---:|---:|---|"]
    group = ""
    for row in rows:
        if row["group"] != group:
            group = row["group"]
            lines.append(f"| **{group}** | | | | |")
        with_unit = lambda value: f"{rounded(value)} {row['unit']}".strip()
        measured = with_unit(row["value"]) + ("" if row.get("met", True) else ", missed") if "value" in row else f"not measured: {row['problem']}"
        aim = f"<= {with_unit(row['aim'])}" if "aim" in row else f">= {with_unit(row['at_least'])}" if "at_least" in row else ""
        lines.append(f"| {row['figure']} | {measured} | {aim} | {with_unit(row['published']) if 'published' in row else ''} | {row.get('by', '')} |")
    met = [row["met"] for row in rows if "met" in row]
    lines += ["", f"{sum(met)} of {len(met)} aims are met; {sum('value' not in row for row in rows)} figures were not measured.", ""]
    return "\n".join(lines)


def said(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()


def machine() -> dict[str, str]:
    info = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.*)$", info.read_text(), re.MULTILINE) if info.exists() else []
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "compiler": (said(COMPILER, "--version").splitlines() or [COMPILER])[0],
        "revision": said("git", "describe", "--always", "--dirty"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="the folder of a release build with its benches")
    parser.add_argument("--out", type=Path, help="the table; printed without it")
    parser.add_argument("--json", type=Path, help="the same as JSON")
    parser.add_argument("--data", default=os.environ.get("HEDDLE_REFERENCE_DATA", ""), help="the folder of the reference data")
    parser.add_argument("--only", nargs="+", metavar="PROGRAM", help="programs of the list")
    options = parser.parse_args()
    listed = json.loads((ROOT / "bench/figures.json").read_text())
    if unknown := set(options.only or ()) - set(listed["programs"]):
        parser.error(f"--only: figures.json has no program '{sorted(unknown)[0]}', expected one of {', '.join(listed['programs'])}")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        places = {"root": str(ROOT), "build": str(options.build), "bin": str(options.build / "bench"), "data": options.data, "scratch": scratch}
        for name, program in listed["programs"].items():
            if options.only and name not in options.only:
                continue
            print(name, file=sys.stderr)
            run = compiled(program) if "compile" in program else executed(program, places)
            rows += [row_of(figure, run) for figure in listed["figures"] if figure["program"] == name]
    order = {(figure["group"], figure["figure"]): n for n, figure in enumerate(listed["figures"])}
    rows.sort(key=lambda row: order[row["group"], row["figure"]])
    here = machine()
    text = table(rows, here)
    if options.out:
        options.out.write_text(text)
    else:
        print(text)
    if options.json:
        options.json.write_text(json.dumps({"machine": here, "figures": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
