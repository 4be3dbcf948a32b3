#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Applies plans to a module on four processes: loss and gradients are those of one.

    test_apply.py HEDDLE, from the repository root. Ends with 77 where there is no torch.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as processes
except ImportError:
    print("skipped: there is no torch")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import heddle_pytorch

MODEL, RANKS = "examples/formats/model.json", 4


class scaled(torch.nn.Module):
    """The model of examples/formats/model.json."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3, bias=False)
        self.scale = torch.nn.Parameter(torch.rand(3))

    def forward(self, x, y):
        rows = torch.log_softmax(self.linear(x) * self.scale, 1)
        return torch.nn.functional.nll_loss(rows, y, reduction="mean" if len(y) else "sum")


def made():
    torch.manual_seed(1)
    module = scaled().double()
    return module, torch.rand(8, 4, dtype=torch.float64), torch.randint(3, (8,))


def run_rank(rank, folder, exported):
    dist.init_process_group("gloo", init_method=f"file://{folder}/{pathlib.Path(exported).stem}.store", rank=rank, world_size=RANKS)
    alone, x, y = made()
    expected = alone(x, y)
    expected.backward()
    module, _, _ = made()
    plan = heddle_pytorch.read_plan(exported)
    applied = heddle_pytorch.apply(module, plan)
    loss = applied.backward(module(applied.part("x", x), applied.part("y", y)))
    assert torch.allclose(loss, expected, rtol=1e-12), (loss, expected)
    for name, parameter in alone.named_parameters():
        owner, last = module.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]
        wanted = parameter.grad
        if getattr(owner, "parametrizations", None) and last in owner.parametrizations:
            held = owner.parametrizations[last]
            assert torch.equal(getattr(owner, last), parameter), name
            wanted, parameter = held[0].part(wanted), held.original
        else:
            parameter = getattr(owner, last)
        assert parameter.shape == wanted.shape and torch.allclose(parameter.grad, wanted, rtol=1e-12), name
    # A plan that is none of the module changes nothing.
    for field, value in (("stages", []), ("micro_batches", 2), ("stages", [{**plan["stages"][0], "parameters": {}}])):
        try:
            heddle_pytorch.apply(made()[0], {**plan, field: value})
            raise AssertionError("accepted")
        except ValueError:
            pass
    dist.destroy_process_group()


def exported(heddle, folder, form):
    """What a plan of four equal devices exports that stores linear.weight in this form."""
    plan, out = folder / "plan.json", folder / "placements.json"
    subprocess.run([heddle, "plan", "--planner", "hap", "--model", MODEL, "--cluster", "examples/clusters/p100x4.json", "--out", plan, "--pin", "x=shard(0)", "--pin", f"linear.weight={form}"],
                   check=True, stdout=subprocess.PIPE)
    subprocess.run([heddle, "export", "--plan", plan, "--to", "dtensor", "--out", out], check=True)
    return json.loads(out.read_text())


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows, columns = (exported(sys.argv[1], folder, form) for form in ("shard(0)", "shard(1)"))
        uneven = [[3, 3, 1, 1], [2, 1, 1, 0]], [[4, 0, 2, 2], [0, 4, 0, 0]]  # as for unequal devices: samples, columns
        for number, (plan, parts) in enumerate(((rows, None), (columns, None), *((columns, p) for p in uneven))):
            stage = plan["stages"][0]
            if parts:
                for placements in stage["inputs"].values():
                    placements[0]["parts"] = parts[0]
                stage["parameters"]["linear.weight"]["stored"][0]["parts"] = parts[1]
            out = folder / f"case{number}.json"
            out.write_text(json.dumps(plan))
            processes.spawn(run_rank, (str(folder), str(out)), RANKS)
            print(f"samples {stage['inputs']['x'][0]['parts']}, linear.weight {stage['parameters']['linear.weight']['stored']}")
