#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Applies plans to modules on four processes: two iterations have the losses and gradients of one process, in float64.

    test_apply.py HEDDLE, from the repository root. Ends with 77 where there is no PyTorch that is new enough.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import traceback

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1]), "adapters/libtorch"]
try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as processes

    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 11):
        raise ImportError(f"PyTorch is {torch.__version__}, which is too old")
except ImportError as error:
    print(f"skipped: {error}; adapters/pytorch/test/run.sh installs one that is new enough")
    sys.exit(77)

import export_fx
import export_pt2
import heddle_pytorch
import models
from heddle_pytorch.forms import _all_reduce, converted, line, moved, part_of

RANKS, TOLERANCE = 4, 1e-12
MODELS = {"transformer": models.transformer, "perceptron": models.perceptron}


def cluster(rates, devices=1, inter=1e9, latency=0.0, inside=None):
    """Machines of slow devices with a fast network, on which small models are worth dividing."""
    types = {rate: f"device{number}" for number, rate in enumerate(dict.fromkeys(rates))}
    return {"format": "heddle.cluster", "version": 1, "name": "small",
            "device_types": [{"name": name, "memory": 1e9, "bandwidth": 1e10, "rates": {"float32": rate}} for rate, name in types.items()],
            "machines": [{"type": types[rate], "count": 1, "devices": devices} for rate in rates],
            "links": {"inter": {"bandwidth": inter, "latency": latency}, "intra": {"bandwidth": 1e10, "latency": latency if inside is None else inside}}}


CLUSTERS = {"equal": cluster([1e9] * 4), "far": cluster([1e9] * 4, latency=1e-6), "unequal": cluster([3e9, 3e9, 1e9, 1e9]),
            "slow one": cluster([9e9] * 3 + [1e8]), "pairs": cluster([1e9] * 2, 2, 3e8), "late pairs": cluster([1e9] * 2, 2, 3e8, 1e-5, inside=0.0), "near pairs": cluster([1e9] * 2, 2, 1e9, 2e-7),
            "far pairs": cluster([1e9] * 2, 2, 1e9, 5e-6), "unequal pairs": cluster([2e9, 1e9], 2, 3e8)}
# What has a statistic stays whole, as tensor parallelism of frameworks has it.
WHOLE = [option for name in ("layer_norm", "layer_norm_1", "layer_norm_2", "layer_norm_3", "layer_norm_4") for option in ("--forbid", f"{name}=shard(2)")]
WHOLE += ["--forbid", "flatten_2=shard(1)"]
# `by` is who cuts and exchanges: PyTorch, or the package, which does in any case what PyTorch can too.
CASES = [
    {"name": "data parallel, uneven", "model": "transformer", "batch": 16, "cluster": "unequal", "by": "own"},
    {"name": "data parallel, one rank without samples", "model": "transformer", "batch": 16, "cluster": "slow one", "by": "own"},
    {"name": "sharded states", "model": "transformer", "batch": 16, "cluster": "equal", "by": "torch"},
    {"name": "fully sharded", "model": "transformer", "batch": 16, "cluster": "equal", "by": "torch", "options": ["--memory-limit", "250000"]},
    {"name": "fully sharded, uneven", "model": "transformer", "batch": 16, "cluster": "unequal", "by": "own", "options": ["--memory-limit", "350000"]},
    {"name": "sharded in pairs", "model": "transformer", "batch": 16, "cluster": "late pairs", "by": "torch", "options": ["--mesh", "2x2"]},
    {"name": "sharded in pairs and across them", "model": "transformer", "batch": 16, "cluster": "pairs", "by": "own", "options": ["--mesh", "2x2"]},
    {"name": "sharded in pairs, uneven", "model": "transformer", "batch": 12, "cluster": "unequal pairs", "by": "own", "options": ["--mesh", "2x2"]},
    {"name": "attention by rows", "model": "transformer", "batch": 16, "cluster": "unequal pairs", "options": ["--mesh", "2x2"],
     "refused": r"attention.* where no module ends or begins; nearest is data parallelism .* more time"},
    {"name": "tensor parallel", "model": "transformer", "batch": 4, "cluster": "far", "by": "torch", "from": "fx", "options": WHOLE},
    {"name": "tensor parallel and sharded", "model": "transformer", "batch": 2, "cluster": "equal", "by": "own", "from": "fx", "options": WHOLE},
    {"name": "tensor parallel, uneven", "model": "transformer", "batch": 4, "cluster": "unequal", "by": "own", "from": "fx", "options": WHOLE},
    {"name": "tensor parallel in pairs", "model": "transformer", "batch": 8, "cluster": "far pairs", "by": "torch", "options": ["--mesh", "2x2"]},
    {"name": "tensor parallel and sharded in pairs", "model": "transformer", "batch": 8, "cluster": "near pairs", "by": "own", "options": ["--mesh", "2x2"]},
    {"name": "perceptron", "model": "perceptron", "batch": 4, "cluster": "equal", "by": "torch"},
    {"name": "perceptron, uneven", "model": "perceptron", "batch": 4, "cluster": "unequal", "by": "own", "from": "fx"},
    {"name": "perceptron in pairs", "model": "perceptron", "batch": 4, "cluster": "pairs", "by": "own", "options": ["--mesh", "2x2"]},
    {"name": "split statistics", "model": "transformer", "batch": 2, "cluster": "equal",
     "refused": r"cut along what its statistics are of; nearest is ZeRO-\d, at [\d.]+ % more time"},
]


def of_one_process(model, batch):
    torch.manual_seed(1)
    module, inputs = MODELS[model]()
    return module.double(), {name: (value.double() if value.is_floating_point() else value)[:batch] for name, value in inputs.items()}


def difference(applied, alone):
    """The largest difference of a gradient from that of one process, relative to the largest gradient of all."""
    largest = max(parameter.grad.abs().max() for parameter in alone.parameters())
    worst = 0.0
    for name, parameter in alone.named_parameters():
        gradient, expected = applied.parameters[name].grad, parameter.grad
        if hasattr(gradient, "full_tensor"):
            gradient = gradient.full_tensor()
        else:
            expected = applied.part(name, expected)
        assert gradient.shape == expected.shape, (name, gradient.shape, expected.shape)
        if expected.numel():
            worst = max(worst, ((gradient - expected).abs().max() / largest).item())
    return worst


def compare(case, plan, by_torch):
    """Trains by a plan and alone; returns the largest relative difference, and whether PyTorch did it."""
    alone, inputs = of_one_process(case["model"], case["batch"])
    module, _ = of_one_process(case["model"], case["batch"])
    applied = heddle_pytorch.apply(module, plan, by_torch=by_torch)
    worst = 0.0
    for _ in range(2):
        expected = alone(**inputs)
        expected.backward()
        loss = applied.backward(module(**{name: applied.part(name, value) for name, value in inputs.items()}))
        worst = max(worst, abs(loss.item() / expected.item() - 1), difference(applied, alone))
        for trained in (alone, module):
            optimizer = torch.optim.SGD(trained.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
    worst = torch.tensor(worst)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return worst.item(), applied.by_torch


def refusal(case, plan):
    """What `apply` says of a plan; the module is as it was."""
    module, _ = of_one_process(case["model"], case["batch"])
    before = {name: parameter.clone() for name, parameter in module.named_parameters()}
    try:
        heddle_pytorch.apply(module, plan)
    except ValueError as error:
        assert all(torch.equal(parameter, before[name]) for name, parameter in module.named_parameters())
        return str(error)
    return ""


def run_case(case, plan, tell):
    """Runs a case, and tells what came of it; raises AssertionError."""
    if "refused" in case:
        said = refusal(case, plan)
        assert re.search(case["refused"], said), said or "it was applied"
        stage = plan["stages"][0]
        for other, why in (({"stages": [stage, stage]}, "one stage"), ({"micro_batches": 2}, "micro-batches"), ({"stages": [{**stage, "mesh": [8]}]}, "8 devices"),
                           ({"stages": [{**stage, "parameters": {}}]}, "differ"), ({"stages": [{k: v for k, v in stage.items() if k != "modules"}]}, "--model")):
            assert why in refusal(case, {**plan, **other}), why
        tell(f"{case['name']}: {said}")
        return
    for by_torch in (None, False) if case["by"] == "torch" else (None,):
        worst, was_by_torch = compare(case, plan, by_torch)
        by = "torch" if was_by_torch else "own"
        assert by == (case["by"] if by_torch is None else "own"), f"by {by}"
        assert worst <= TOLERANCE, f"differs by {worst}"
        tell(f"{case['name']} by {by}: {worst:.1e}")


def run_rank(rank, folder, cases):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    check_conversions((rank,), [line(0, (rank,), dist.group.WORLD)])
    failed = 0
    for case in cases:
        try:
            run_case(case, heddle_pytorch.read_plan(case["plan"]), print if rank == 0 else lambda _: None)
        except Exception:
            failed += 1
            print(f"{case['name']} failed on rank {rank}\n{traceback.format_exc()}", flush=True)
    dist.destroy_process_group()
    sys.exit(failed != 0)


def check_conversions(place, lines):
    """A matrix goes from every form to every other, and is what it was."""
    whole, rows, columns = torch.arange(96.0, dtype=torch.float64).view(8, 12), [3, 0, 4, 1], [6, 3, 0, 3]
    part = heddle_pytorch.plans.placement
    copies, summands = part("Replicate"), part("Replicate", summands=True)
    parts = [part("Shard", 0, tuple(rows)), part("Shard", 1, tuple(columns)), part("Shard", 1, tuple(columns), widths=(2, 1))]

    def held(form):
        """What this rank holds of the matrix; a summand is a part of each element."""
        return whole * (place[0] + 1) / 10 if form.kind == "Partial" else part_of(whole, (form,), lines)

    forms = [copies, summands, part("Partial"), *parts]
    for before in forms:
        for after in forms:
            tensor = held(before).clone().requires_grad_()
            result = converted(tensor, (before,), (after,), lines)
            total = _all_reduce(result.detach(), lines[0]) if after.kind == "Partial" else result
            expected = whole if after.kind == "Partial" else held(after)
            assert torch.allclose(total, expected, rtol=TOLERANCE), (before, after)
            # The gradient of a sum of squares is twice the matrix, held in the dual of a form.
            result.backward(moved(2 * whole, copies, after.dual(), lines[0]))
            gradient = moved(tensor.grad, before.dual(), copies, lines[0])
            assert torch.allclose(gradient, 2 * whole, rtol=TOLERANCE), (before, after)


def exported(model, folder):
    """Writes a model as an exported program and as a traced graph; returns the files."""
    program, graph = folder / f"{model}.pt2.gz", folder / f"{model}.json.gz"
    export_pt2.save_graph(export_pt2.export(*MODELS[model]()), program)
    export_fx.write(export_fx.export(*MODELS[model](), model), graph)
    return {"pt2": program, "fx": graph}


def planned(heddle, folder, files, case):
    """Has a plan made of a case, and exported for PyTorch; returns the file."""
    plan, out, on = (folder / f"{case['name'].replace(' ', '_')}.{kind}.json" for kind in ("plan", "placed", "cluster"))
    on.write_text(json.dumps(CLUSTERS[case["cluster"]]))
    model = files[case["model"]][case.get("from", "pt2")]
    subprocess.run([heddle, "plan", "--planner", "hap", "--model", model, "--batch", str(case["batch"]), "--cluster", on,
                    "--out", plan, *case.get("options", [])], check=True, stdout=subprocess.PIPE)
    subprocess.run([heddle, "export", "--plan", plan, "--model", model, "--to", "dtensor", "--out", out], check=True)
    return str(out)


def main(heddle):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        files = {model: exported(model, folder) for model in MODELS}
        cases = [{**case, "plan": planned(heddle, folder, files, case)} for case in CASES]
        processes.start_processes(run_rank, (name, cases), RANKS, start_method="fork")


if __name__ == "__main__":
    main(sys.argv[1])
