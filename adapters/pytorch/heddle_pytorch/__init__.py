# SPDX-License-Identifier: BSL-1.0
"""Applies a plan of Heddle to an nn.Module: the ranks of a process group hold what the plan's devices store.

Plans are read as `heddle export --to dtensor` writes them. What is applied are plans of one stage on one axis whose devices
divide the batch and use parameters whole: data parallelism, ZeRO and FSDP, each parameter in its own way, at any shares.
DTensor cuts equal chunks; here parts are as large as the plan says.
"""
import json
import re

import torch
import torch.distributed as dist
from torch.nn.utils import parametrize


class _gather(torch.autograd.Function):
    """Parts of a tensor become the whole of it; its gradients are summed, each part where it belongs."""

    @staticmethod
    def forward(ctx, part, cut):
        ctx.cut = cut
        shape = list(part.shape)
        pieces = []
        for rank, size in enumerate(cut.sizes):
            shape[cut.dimension] = size
            piece = part.contiguous() if rank == cut.rank else part.new_empty(shape)
            if size:
                dist.broadcast(piece, dist.get_global_rank(cut.group, rank), group=cut.group)
            pieces.append(piece)
        return torch.cat(pieces, cut.dimension)

    @staticmethod
    def backward(ctx, gradient):
        cut = ctx.cut
        pieces = [p.contiguous() for p in gradient.split(cut.sizes, cut.dimension)]
        for rank, piece in enumerate(pieces):
            if piece.numel():
                dist.reduce(piece, dist.get_global_rank(cut.group, rank), group=cut.group)
        return pieces[cut.rank], None


class uneven_shards(torch.nn.Module):
    """A parametrization: the parameter is stored in parts along a dimension, as many places on each rank as `sizes` says, and
    whole where it is used."""

    def __init__(self, dimension, sizes, group):
        super().__init__()
        self.dimension, self.sizes, self.group, self.rank = dimension, list(sizes), group, dist.get_rank(group)

    def part(self, whole):
        """This rank's part of a tensor."""
        return whole.split(self.sizes, self.dimension)[self.rank]

    def forward(self, part):
        return _gather.apply(part, self)

    def right_inverse(self, whole):
        return self.part(whole).clone()


class applied_plan:
    """A module as a plan has it. `weight` is this rank's part of the batch."""

    def __init__(self, module, inputs, group):
        self.module, self._inputs, self._group = module, inputs, group
        sizes = next(iter(inputs.values())).sizes
        self.weight = sizes[dist.get_rank(group)] / sum(sizes)

    def part(self, name, tensor):
        """This rank's samples of an input, by its name in the plan."""
        return self._inputs[name].part(tensor)

    def backward(self, loss):
        """Differentiates a loss that is a mean over this rank's samples; returns that of the whole batch. Every rank calls it, as
        it calls the module, also where it has no samples: there `loss` is a sum over none."""
        mine = loss * self.weight if self.weight else loss
        mine.backward()
        whole = mine.detach().clone()
        dist.all_reduce(whole, group=self._group)
        return whole


def read_plan(path):
    """Reads what `heddle export --to dtensor` wrote."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def apply(module, plan, group=None):
    """Cuts a module's parameters as a plan does, in place, and has their gradients summed over the ranks of a group.

    Ranks are the plan's devices, and each has the whole module, with the same values. Names of parameters are the model's.
    Raises ValueError, before anything is changed, for a plan that is none of the module, or that does otherwise than is said above.
    """
    group = group or dist.group.WORLD
    if len(plan["stages"]) != 1 or plan["micro_batches"] != 1:
        raise ValueError("the plan has stages or micro-batches, expected one stage with the whole batch")
    stage = plan["stages"][0]
    if stage["mesh"] != [dist.get_world_size(group)]:
        raise ValueError(f"the plan is for devices {stage['mesh']}, expected {[dist.get_world_size(group)]}")

    def cut_of(name, placement):
        if placement == "Replicate()":
            return None
        if not isinstance(placement, dict) or "strided" in placement:
            raise ValueError(f"{name} is {placement}, expected a shard of a whole dimension")
        dimension = int(re.fullmatch(r"Shard\((\d+)\)", placement["placement"]).group(1))
        return uneven_shards(dimension, placement["parts"], group)

    inputs = {name: cut_of(name, row[0]) for name, row in stage["inputs"].items()}
    if not inputs or any(cut is None or cut.dimension != 0 for cut in inputs.values()):
        raise ValueError("the plan does not divide the batch among its devices")
    here = dict(module.named_parameters())
    if here.keys() != stage["parameters"].keys():
        raise ValueError(f"parameters of the module and of the plan differ: {sorted(here.keys() ^ stage['parameters'].keys())}")
    cuts = {}
    for name, row in stage["parameters"].items():
        if row.get("used", row["stored"])[0] != "Replicate()":
            raise ValueError(f"{name} is used as {row.get('used', row['stored'])[0]}, expected that it is used whole")
        cuts[name] = cut_of(name, row["stored"][0])

    def summed(parameter):
        dist.all_reduce(parameter.grad, group=group)

    for name, cut in cuts.items():
        if cut is None:
            here[name].register_post_accumulate_grad_hook(summed)
            continue
        owner, _, last = name.rpartition(".")
        parametrize.register_parametrization(module.get_submodule(owner), last, cut, unsafe=True)
    return applied_plan(module, inputs, group)
