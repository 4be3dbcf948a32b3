# SPDX-License-Identifier: BSL-1.0
"""A plan applied by this package itself: parts of any sizes, and their exchanges."""
from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils import parametrize

from .forms import converted, line, part_of
from .plans import module_row, parameter, placements, stage_plan


class stored_parts(nn.Module):
    """A parametrization: a parameter is stored in one form and used in another."""

    def __init__(self, stored: placements, used: placements, lines: list[line]):
        super().__init__()
        self.stored, self.used, self.lines = stored, used, lines

    def forward(self, part: Tensor) -> Tensor:
        return converted(part, self.stored, self.used, self.lines)

    def right_inverse(self, tensor: Tensor) -> Tensor:
        return part_of(tensor, self.stored, self.lines).clone()


def _replaced(module: nn.Module, name: str, tensor: Tensor) -> None:
    old = getattr(module, name)
    setattr(module, name, nn.Parameter(tensor.detach().clone(), old.requires_grad))


def place_parameter(module: nn.Module, name: str, how: parameter, lines: list[line]) -> nn.Parameter:
    """Cuts a parameter as a plan stores it, and has it converted where it is used; returns what holds this rank's part."""
    owner, last = module.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]
    # Copies that are used whole are summed by a hook, which leaves their names alone.
    used = tuple(stored if stored.kind == use.kind == "Replicate" else use for stored, use in zip(how.stored, how.used))
    if used != how.stored:
        parametrize.register_parametrization(owner, last, stored_parts(how.stored, used, lines), unsafe=True)
        return owner.parametrizations[last].original
    if any(form.is_part for form in how.stored):
        _replaced(owner, last, part_of(getattr(owner, last), how.stored, lines))
    return getattr(owner, last)


def _convert_around(module: nn.Module, row: module_row, lines: list[line]) -> None:
    source, result = row.inputs[0], row.outputs[0]

    def before(_, arguments):
        return converted(arguments[0], source.outside, source.inside, lines), *arguments[1:]

    def after(_, __, output):
        return converted(output, result.inside, result.outside, lines)

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)


def _look_up_own_words(embedding: nn.Embedding, first: int, count: int) -> None:
    """An embedding that has some rows of the table: it makes zeros for words of other rows."""
    outside = []

    def before(_, arguments):
        words = arguments[0] - first
        outside.append((words < 0) | (words >= count))
        return words.masked_fill(outside[-1], 0), *arguments[1:]

    def after(_, __, output):
        return output.masked_fill(outside.pop().unsqueeze(-1), 0)

    embedding.register_forward_pre_hook(before)
    embedding.register_forward_hook(after, prepend=True)


def place(module: nn.Module, stage: stage_plan, lines: list[line]) -> dict[str, nn.Parameter]:
    """Applies a plan; returns the parameters that hold this rank's parts, by the names that they had."""
    for name, row in stage.modules.items():
        if row.exchanges:
            _convert_around(module.get_submodule(name), row, lines)
    for name, how in stage.parameters.items():
        owner = module.get_submodule(name.rpartition(".")[0])
        if not isinstance(owner, nn.Embedding):
            continue
        for along in lines:
            form = how.used[along.axis]
            if form.is_part and form.dimension == 0:
                rows = form.rows(along.axis, along.place)
                _look_up_own_words(owner, sum(rows[:along.rank]), rows[along.rank])
    return {name: place_parameter(module, name, how, lines) for name, how in stage.parameters.items()}
