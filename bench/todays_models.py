#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Plan and verify models of today, and write what was found as a page.

    bench/todays_models.py build/release/heddle --out docs/results/todays_models.md
    bench/todays_models.py build/release/heddle --graphs FOLDER FILE --clusters A.json B.json

Every graph of the folders (by default the committed ones) is read, planned by `heddle plan --planner hap` on every cluster,
and the plan is verified by execution. Seconds are CPU time of the whole command, memory is the most that it held. Exits with 1 where a model
was not read, planned and verified, or less than all of its distinct steps ran.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(os.path.relpath(Path(__file__).resolve().parents[1]))
GRAPHS = (ROOT / "bench/todays_models",)
CLUSTERS = tuple(ROOT / f"examples/clusters/{name}.json" for name in ("h100x16_nvlink", "h100x8_a100x8_nvlink"))
ENDINGS = (".pt2", ".pt2.gz", ".pt2.json", ".pt2.json.gz")
MEMORY_LIMIT = 8 << 30  # of a command: one that takes more has failed
TIME_LIMIT = 600
AGREEMENT = 1e-10

EXPLANATION = """\
# Models of today

What `heddle` makes of {count} graphs of `torch.export` in training on {clusters} clusters: decoders and encoders with two layers, others with a few or all of their own. The graphs are made by
[`make_graphs.py`](../../bench/todays_models/make_graphs.py) of unmodified models of PyTorch, transformers, timm and torchvision with their real widths, and this page by

```sh
bench/todays_models.py build/release/heddle {options}
```

**iteration** is the plan's seconds, **gap** by what part of them another program at its shares can at most be faster, **CPU** and **memory** those of the whole command that reads and plans
(`heddle plan --planner hap`), **baseline** what the best of data parallelism, ZeRO, fully sharded and tensor parallel training takes relative to the plan. `heddle verify` then executes the plan
on a rank for each device and the model on one: **error** is the largest relative difference of the loss and of every gradient, **executed** the share of distinct steps (operator, extents, forms)
that ran, **verified** that command's seconds and memory. **falls back** is the share of the model's floating-point operations in operators that have no rule and are computed in full on every device.
"""


def command(*arguments):
    """What a command printed as JSON (or why it failed), its CPU seconds and the most bytes it held."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        def limits():
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
            resource.setrlimit(resource.RLIMIT_CPU, (TIME_LIMIT, TIME_LIMIT))
        child = subprocess.Popen([str(a) for a in arguments], stdout=out, stderr=errors, preexec_fn=limits)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        text, problem = out.read().decode(), errors.read().decode().strip()
    seconds, held = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
    try:
        return json.loads(text), seconds, held
    except json.JSONDecodeError:
        return {"problem": problem.splitlines()[-1] if problem else f"ended with {child.returncode}"}, seconds, held


def left_out(heddle, model):
    """The share of a model's floating-point operations in operators without a rule."""
    shown, _, _ = command(heddle, "model", model, "--json")
    if "problem" in shown:
        return None
    flops = {kind["kind"]: kind["forward_flops"] + kind["backward_flops"] for kind in shown["kinds"]}
    without = {rule["target"] for rule in shown["without_rule"]}
    total = sum(flops.values())
    return sum(share for kind, share in flops.items() if any(target.endswith(kind) for target in without)) / total if total else 0.0


def measure(heddle, model, cluster):
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        planned, seconds, held = command(heddle, "plan", "--planner", "hap", "--model", model, "--cluster", cluster, "--json", "--out", plan)
        row = {"planned": planned, "seconds": seconds, "bytes": held}
        if plan.exists():
            row["verified"], row["verified_seconds"], row["verified_bytes"] = command(
                heddle, "verify", "--plan", plan, "--model", model, "--cluster", cluster, "--json")
        return row


def gap_of(planned):
    cost, bound = planned.get("cost"), planned.get("lower_bound")
    return 1 - bound / cost if cost and bound else None


def is_whole(row):
    verified = row.get("verified", {})
    return (gap_of(row["planned"]) is not None and verified.get("valid", False) and verified.get("executed") == 1
            and (verified.get("max_relative_error") or 0) <= AGREEMENT)


def cells(row):
    planned, verified = row["planned"], row.get("verified", {})
    gap = gap_of(planned)
    baselines = [seconds for seconds in (planned.get("baselines") or {}).values() if seconds]
    error = verified.get("max_relative_error")
    return [
        f"{planned['cost']:.6f} s" if planned.get("cost") else "fails",
        "none" if gap is None else f"{100 * gap:.2f} %",
        f"{row['seconds']:.2f} s",
        f"{row['bytes'] / 1e6:.0f} MB",
        f"{min(baselines) / planned['cost']:.2f}" if baselines and planned.get("cost") else "none",
        "fails" if error is None else f"{error:.0e}",
        f"{100 * verified['executed']:.4g} %" if verified.get("executed") is not None else "none",
        f"{row['verified_seconds']:.1f} s, {row['verified_bytes'] / 1e6:.0f} MB" if "verified_seconds" in row else "none",
    ]


def summary(rows):
    gaps = [gap for gap in (gap_of(row["planned"]) for row in rows) if gap is not None]
    within = lambda limit: sum(gap <= limit for gap in gaps)
    errors = [row["verified"].get("max_relative_error") or 0 for row in rows if "verified" in row]
    return (f"Planned with a bound: {len(gaps)} of {len(rows)}; within 1 %: {within(0.01)}, within 5 %: {within(0.05)}. "
            f"Verified, every distinct step executed: {sum(map(is_whole, rows))}, errors up to {max(errors, default=0):.0e}. "
            f"CPU to plan: at most {max(row['seconds'] for row in rows):.2f} s, memory {max(row['bytes'] for row in rows) / 1e6:.0f} MB.")


def problems(rows):
    """What commands said of models that were not planned and verified."""
    told = ((row["name"], row["planned"].get("problem") or row["planned"].get("reason") or row.get("verified", {}).get("problem")) for row in rows)
    return [f"- `{name}`: {problem.removeprefix('heddle: ')}" for name, problem in told if problem]


def page_of(cluster, rows):
    head = ["model", "iteration", "gap", "CPU", "memory", "baseline", "error", "executed", "verified", "falls back"]
    table = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1), *(row["text"] for row in rows)]
    return "\n".join([f"## {cluster.name.removesuffix('.json')}", "", summary(rows), "", *table, *([""] if problems(rows) else []), *problems(rows)]) + "\n"


def name_of(path):
    return next(path.name[: -len(end)] for end in sorted(ENDINGS, key=len, reverse=True) if path.name.endswith(end))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("heddle", help="the command")
    parser.add_argument("--graphs", nargs="+", type=Path, default=GRAPHS, help="folders of graphs, or files")
    parser.add_argument("--clusters", nargs="+", type=Path, default=CLUSTERS, help="cluster files")
    parser.add_argument("--jobs", type=int, default=1, help="commands at a time; CPU time is measured")
    parser.add_argument("--only", nargs="+", help="names of graphs")
    parser.add_argument("--out", type=Path, help="the page; without it the tables are printed")
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(arguments)
    found = [path for given in options.graphs for path in (sorted(given.iterdir()) if given.is_dir() else [given]) if path.name.endswith(ENDINGS)]
    models = [path for path in found if not options.only or name_of(path) in options.only]
    if not models:
        parser.error("no graphs there")

    def row_of(model, cluster):
        row, share = measure(options.heddle, model, cluster), left_out(options.heddle, model)
        row["name"] = name_of(model)
        row["text"] = "| " + " | ".join([name_of(model), *cells(row), "none" if not share else f"{100 * share:.2g} %"]) + " |"
        print(f"{cluster.name}: {row['text']}", file=sys.stderr, flush=True)
        return row

    with ThreadPoolExecutor(options.jobs) as pool:
        rows = {cluster: list(pool.map(lambda model, cluster=cluster: row_of(model, cluster), models)) for cluster in options.clusters}
    text = "\n".join(page_of(cluster, rows[cluster]) for cluster in options.clusters)
    if options.out:
        head = EXPLANATION.format(count=len(models), clusters=len(options.clusters), options=" ".join(arguments[1:]))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(f"{head}\n{text}")
    else:
        print(text)
    return 0 if all(is_whole(row) for of_cluster in rows.values() for row in of_cluster) else 1


if __name__ == "__main__":
    sys.exit(main())
