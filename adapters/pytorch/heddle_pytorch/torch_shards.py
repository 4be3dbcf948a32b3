# SPDX-License-Identifier: BSL-1.0
"""A plan of even shares applied by PyTorch: DTensor placements, parallelize_module and fully_shard."""
from __future__ import annotations

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module

from .plans import module_row, parameter, placement, placements, stage_plan


def _flat(parts: tuple) -> list[int]:
    return [n for part in parts for n in (_flat(part) if isinstance(part, tuple) else [part])]


def _is_even(form: placement) -> bool:
    return not form.is_part or (not form.widths and len(set(_flat(form.parts))) == 1)


def _is_data(stage: stage_plan, axis: int) -> bool:
    """Whether ranks along an axis have whole parameters where they use them, and modules exchange nothing."""
    return (not any(how.used[axis].is_part or how.used[axis].kind == "Partial" for how in stage.parameters.values())
            and not any(b.inside[axis] != b.outside[axis] for row in stage.modules.values() for b in row.inputs + row.outputs))


def data_axes(stage: stage_plan) -> list[int]:
    return [axis for axis in range(len(stage.mesh)) if _is_data(stage, axis)]


def obstacle(stage: stage_plan) -> str:
    """Why PyTorch's own cannot do what a plan says; empty if they can."""
    of_modules = [form for row in stage.modules.values() for b in row.inputs + row.outputs for form in b.inside + b.outside]
    of_inputs = [form for forms in stage.inputs.values() for form in forms]
    of_parameters = [form for how in stage.parameters.values() for form in how.stored + how.used]
    if not all(map(_is_even, of_modules + of_inputs + of_parameters)):
        return "parts are not equal"
    data = data_axes(stage)
    inner = [axis for axis in range(len(stage.mesh)) if axis not in data]
    if data and inner and inner[0] < data[-1] and any(how.stored[axis].is_part for how in stage.parameters.values() for axis in data):
        return "parameters are sharded inside an axis of tensor parallelism"
    for name, how in stage.parameters.items():
        if name.rpartition(".")[0] not in stage.modules and any(form.is_part or form.kind == "Partial" for form in how.used):
            return f"{name} is used in parts by no module of one operator"
        sharded = [axis for axis in data if how.stored[axis].is_part]
        if len(sharded) > 1 or sharded and (sharded[0] != data[-1] or len(data) > 2):
            return f"{name} is sharded on an outer axis"
        if sharded and [axis for axis in range(len(stage.mesh)) if how.used[axis].summands] != data:
            return f"gradients of {name} are not summed on axes of data parallelism alone"
        dimensions = [form.dimension for form in how.stored if form.is_part]
        if len(set(dimensions)) < len(dimensions):
            return f"a dimension of {name} is cut on two axes"
        if any(how.stored[axis] != how.used[axis] and how.stored[axis].is_part for axis in inner):
            return f"{name} is gathered on an axis of tensor parallelism"
    return ""


def _words(forms: placements, axes: list[int]) -> list[Placement]:
    def word(form: placement) -> Placement:
        return Shard(form.dimension) if form.is_part else Partial() if form.kind == "Partial" else Replicate()

    return [word(forms[axis]) for axis in axes]


class placed(ParallelStyle):
    """A module whose parameters, inputs and results are DTensors inside, and tensors of this rank outside."""

    def __init__(self, row: module_row | None, parameters: dict[str, parameter], axes: list[int]):
        super().__init__()
        self.row, self.parameters, self.axes = row, parameters, axes

    def _partition(self, _, module: nn.Module, mesh: DeviceMesh) -> None:
        for name, how in self.parameters.items():
            tensor = getattr(module, name)
            cut = distribute_tensor(tensor.detach(), mesh, _words(how.stored, self.axes), src_data_rank=None)
            module.register_parameter(name, nn.Parameter(cut, tensor.requires_grad))

    def _inputs(self, _, arguments: tuple, mesh: DeviceMesh) -> tuple:
        source = self.row.inputs[0]
        given = DTensor.from_local(arguments[0], mesh, _words(source.outside, self.axes), run_check=False,
                                   grad_placements=_words(tuple(f.dual() for f in source.outside), self.axes))
        return given.redistribute(placements=_words(source.inside, self.axes)), *arguments[1:]

    def _outputs(self, _, output: DTensor, __):
        result = self.row.outputs[0]
        given = output.redistribute(placements=_words(result.outside, self.axes))
        return given.to_local(grad_placements=_words(tuple(f.dual() for f in result.outside), self.axes))

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(module, device_mesh, self._partition, self._inputs, self._outputs)


def _parallelize(module: nn.Module, stage: stage_plan, mesh: DeviceMesh, axes: list[int]) -> None:
    owned: dict[str, dict[str, parameter]] = {}
    for name, how in stage.parameters.items():
        owner, _, last = name.rpartition(".")
        owned.setdefault(owner, {})[last] = how
    parallelize_module(module, mesh, {name: placed(row, owned.get(name, {}), axes) for name, row in stage.modules.items()})


def _shard_fully(module: nn.Module, stage: stage_plan, mesh: DeviceMesh, axis: int) -> None:
    """Has fully_shard store what a plan stores in parts along the inner axis of data parallelism; an outer one has copies."""
    sharded = {name: how for name, how in stage.parameters.items() if how.stored[axis].is_part}
    if not sharded:
        return
    of_module = dict(module.named_parameters())
    dimension = {of_module[name]: how.stored[axis].dimension for name, how in sharded.items()}
    kept = {tensor for tensor in of_module.values() if tensor not in dimension}
    owners = {name.rpartition(".")[0]: how.twice for name, how in sharded.items()}
    for owner in sorted(owners.keys() | {""}, key=lambda name: -len(name)):  # inner modules first, all last
        of = module.get_submodule(owner)
        fully_shard(of, mesh=mesh, reshard_after_forward=owners.get(owner, False), ignored_params=kept,
                    shard_placement_fn=lambda tensor: Shard(dimension[tensor]))
        of.set_force_sum_reduction_for_comms(True)
        of.set_gradient_divide_factor(1.0)


def place(module: nn.Module, stage: stage_plan, mesh: DeviceMesh) -> dict[str, nn.Parameter]:
    """Applies a plan; returns the module's parameters by name."""
    names, data = mesh.mesh_dim_names, data_axes(stage)
    axes = [axis for axis in range(len(stage.mesh)) if axis not in data]
    if axes:
        _parallelize(module, stage, mesh[tuple(names[axis] for axis in axes)], axes)
    if data:
        _shard_fully(module, stage, mesh[tuple(names[axis] for axis in data)], data[-1])
    return {name: tensor for name, tensor in module.named_parameters() if name in stage.parameters}
