# SPDX-License-Identifier: BSL-1.0
"""Applies a plan to a module, and weighs the loss of each rank."""
from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from . import own_shards, torch_shards
from .forms import line, part_of
from .plans import placements, refuse, stage_of, stage_plan, whole

ONE_OPERATOR = (nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class applied_plan:
    """A module as a plan has it. `weight` is the part of the loss's samples that this rank has, `by_torch` tells whether PyTorch
    cuts and exchanges tensors, and `parameters` holds this rank's parts by the names that the parameters had."""

    def __init__(self, stage: stage_plan, lines: list[line], weight: float, parameters: dict[str, nn.Parameter], by_torch: bool):
        self.weight, self.parameters, self.by_torch = weight, parameters, by_torch
        self._stage, self._lines = stage, lines
        self._waiting = {name for name, row in stage.modules.items() if row.exchanges}

    def part(self, name: str, tensor: Tensor) -> Tensor:
        """This rank's part of an input, or of what has the shape of a parameter, by its name in the plan."""
        if name in self._stage.inputs:
            return part_of(tensor, self._stage.inputs[name], self._lines)
        return part_of(tensor, self._stage.parameters[name].stored, self._lines)

    def backward(self, loss: Tensor, reduction: str = "mean") -> Tensor:
        """Differentiates a loss that is a mean, or with "sum" a sum, over this rank's samples; returns that of the whole batch.
        Every rank calls it, as it calls the module, also where it has no samples: there `loss` is a sum over none.

        Raises RuntimeError if a module was not called that exchanges what the plan says."""
        if self._waiting:
            raise RuntimeError(f"{sorted(self._waiting)[0]} exchanges tensors in the plan, but its forward was not called")
        mine = loss * self.weight if reduction == "mean" and self.weight else loss
        for along in self._lines:
            if self._stage.loss[along.axis].dual().kind == "Partial":
                mine = mine / along.size
        mine.backward()
        total = mine.detach().clone()
        for along in self._lines:
            if self._stage.loss[along.axis] != whole:
                dist.all_reduce(total, group=along.group)
        return total

    def watch(self, module: nn.Module) -> None:
        """Notes which modules are called that exchange tensors."""
        for name in self._waiting:
            module.get_submodule(name).register_forward_hook(lambda *_, of=name: self._waiting.discard(of))


def _share(plan: dict, stage: stage_plan, along: line) -> float:
    """The part of the samples that this rank has, of those that its line has."""
    if stage.loss[along.axis].kind != "Partial":
        return 1
    shares = set()
    for forms in stage.inputs.values():
        if forms[along.axis].is_part:
            rows = forms[along.axis].rows(along.axis, along.place)
            shares.add(rows[along.rank] / sum(rows) if sum(rows) else 0)
    if len(shares) != 1:
        refuse(plan, f"on axis {along.axis} of its mesh losses add up, but inputs are not cut alike")
    return shares.pop()


def _crosses(before: placements, after: placements) -> bool:
    """Whether an axis changes how it cuts a dimension that an axis inside it goes on cutting: ranks would have to change among themselves what they hold along both."""
    return any(before[outer] != after[outer] and form.is_part and one.is_part and other.is_part and form.dimension == one.dimension == other.dimension
               for outer in range(len(before)) for form in (before[outer], after[outer]) for one, other in zip(before[outer + 1:], after[outer + 1:]))


def _check(plan: dict, module: nn.Module, stage: stage_plan, group) -> None:
    """Raises ValueError if a plan is none of the module, or does what modules cannot."""
    if math.prod(stage.mesh) != dist.get_world_size(group):
        raise ValueError(f"the plan is for {math.prod(stage.mesh)} devices, expected {dist.get_world_size(group)}")
    here = dict(module.named_parameters())
    if here.keys() != stage.parameters.keys():
        raise ValueError(f"parameters of the module and of the plan differ: {sorted(here.keys() ^ stage.parameters.keys())}")
    if stage.obstacle:
        refuse(plan, stage.obstacle)
    for name, row in stage.modules.items():
        if row.exchanges and not isinstance(module.get_submodule(name), ONE_OPERATOR):
            refuse(plan, f"{name} exchanges tensors and is {type(module.get_submodule(name)).__name__}, "
                         f"expected one of {', '.join(kind.__name__ for kind in ONE_OPERATOR)}")
    ways = {**{name: [(how.stored, how.used)] for name, how in stage.parameters.items()},
            **{name: [(b.outside, b.inside) for b in row.inputs + row.outputs] for name, row in stage.modules.items()}}
    for name, changes in ways.items():
        if any(_crosses(*change) for change in changes):
            refuse(plan, f"{name} changes on one axis how a dimension is cut that another inside goes on cutting")
    several = {id(tensor) for name, tensor in module.named_parameters(remove_duplicate=False) if name not in here}
    for name, how in stage.parameters.items():
        if id(here[name]) in several and any(form.is_part for form in how.stored):
            refuse(plan, f"{name} has several owners and is stored in parts")


def _custom(module: nn.Module, stage: stage_plan) -> str:
    """Names a module with parameters in parts that is none of PyTorch's."""
    custom = [name for name in stage.modules if not isinstance(module.get_submodule(name), ONE_OPERATOR)]
    return f"{custom[0]} is no module of PyTorch's of one operator" if custom else ""


def _sum_gradients(stage: stage_plan, parameters: dict[str, nn.Parameter], lines: list[line]) -> None:
    """Has gradients summed of parameters that each rank has and uses as a whole. Along the axes of a DTensor, that is its affair."""
    for name, how in stage.parameters.items():
        parameter = parameters[name]
        own = parameter.device_mesh.mesh_dim_names if isinstance(parameter, DTensor) else ()
        summed = [along for along in lines if how.stored[along.axis].kind == "Replicate" and how.used[along.axis].summands]
        if not summed or not parameter.requires_grad:
            continue

        def total(gradient, placements=getattr(parameter, "placements", None), groups=[a.group for a in summed if f"axis{a.axis}" not in own]):
            if isinstance(gradient, DTensor):
                gradient = gradient.redistribute(placements=placements)
            sums = gradient.clone(memory_format=torch.contiguous_format)
            for group in groups:
                dist.all_reduce(sums.to_local() if isinstance(sums, DTensor) else sums, group=group)
            return sums

        parameter.register_hook(total)


def apply(module: nn.Module, plan: dict, group=None, *, by_torch: bool | None = None) -> applied_plan:
    """Has a module compute what a plan says, in place: its parameters are cut, tensors are exchanged where modules begin and end,
    and gradients are summed over the ranks of a group.

    Ranks are the plan's devices, the last axis of its mesh first, and each has the whole module with the same values. Names of
    parameters are the model's. `by_torch` asks for or forbids DTensor, parallelize_module and fully_shard, which are used where
    they can express the plan. Raises ValueError, before anything is changed, for a plan that is none of the module, or that cannot be applied."""
    group = group or dist.group.WORLD
    stage = stage_of(plan)
    _check(plan, module, stage, group)
    obstacle = torch_shards.obstacle(stage) or _custom(module, stage)
    if by_torch and obstacle:
        refuse(plan, obstacle)
    device = next(module.parameters()).device.type
    ranks = torch.tensor(dist.get_process_group_ranks(group)).view(stage.mesh)
    mesh = DeviceMesh(device, ranks, mesh_dim_names=tuple(f"axis{axis}" for axis in range(len(stage.mesh))))
    place = tuple(mesh.get_coordinate())
    lines = [line(axis, place, mesh.get_group(axis)) for axis in range(len(stage.mesh))]
    weight = math.prod(_share(plan, stage, along) for along in lines)
    uses_torch = not obstacle if by_torch is None else by_torch
    parameters = torch_shards.place(module, stage, mesh) if uses_torch else own_shards.place(module, stage, lines)
    _sum_gradients(stage, parameters, lines)
    applied = applied_plan(stage, lines, weight, parameters, uses_torch)
    applied.watch(module)
    return applied
