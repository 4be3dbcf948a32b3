# SPDX-License-Identifier: BSL-1.0
"""Plans as `heddle export --to dtensor` writes them: how the ranks along each axis of a mesh hold tensors."""
from __future__ import annotations

import json
import re
from dataclasses import dataclass


def _at(numbers: tuple, axis: int, place: tuple[int, ...]) -> list[int]:
    """Those for a place on the axes outside another."""
    for outer in range(axis):
        if not numbers or not isinstance(numbers[0], tuple):
            break
        numbers = numbers[place[outer]]
    return list(numbers)


@dataclass(frozen=True)
class placement:
    """How the ranks along one axis hold a tensor, in the words of DTensor.

    Copies have gradients that are whole or, if `summands`, add up to the whole one. A part has some rows of a dimension: `parts`
    are those of each rank. `widths` are set if the dimension is of pieces that lie side by side, and a step takes so many rows of
    each. Both are lists by the place on each outer axis where one of these cuts the dimension too."""

    kind: str
    dimension: int = -1
    parts: tuple = ()
    widths: tuple = ()
    summands: bool = False

    @property
    def is_part(self) -> bool:
        return self.kind == "Shard"

    def dual(self) -> placement:
        """How the ranks hold the gradient."""
        if self.is_part or (self.kind == "Replicate" and not self.summands):
            return self
        return placement("Partial") if self.kind == "Replicate" else placement("Replicate", summands=True)

    def rows(self, axis: int, place: tuple[int, ...]) -> list[int]:
        """The rows of each rank along an axis, for the ranks of a place on the mesh."""
        return _at(self.parts, axis, place)

    def pieces(self, axis: int, place: tuple[int, ...]) -> list[int]:
        """The widths of the pieces that such ranks cut; empty if each has one range of rows."""
        return _at(self.widths, axis, place)


whole = placement("Replicate")

placements = tuple[placement, ...]


@dataclass(frozen=True)
class parameter:
    """How a parameter is stored, and how operators use it; `twice` if it is gathered anew for the backward pass."""

    stored: placements
    used: placements
    twice: bool


@dataclass(frozen=True)
class boundary:
    """The form in which code has a tensor, and in which its module does: of inputs `outside` is before, of outputs after."""

    outside: placements
    inside: placements


@dataclass(frozen=True)
class module_row:
    """What a module does that exchanges tensors, or has parameters in parts."""

    inputs: tuple[boundary, ...]
    outputs: tuple[boundary, ...]

    @property
    def exchanges(self) -> bool:
        return any(b.outside != b.inside for b in self.inputs + self.outputs)


@dataclass(frozen=True)
class stage_plan:
    """What the ranks of a mesh do. `loss` is the form in which the loss is computed; `obstacle` says why modules cannot do all of
    it, or is empty."""

    mesh: tuple[int, ...]
    inputs: dict[str, placements]
    parameters: dict[str, parameter]
    modules: dict[str, module_row]
    loss: placements
    obstacle: str


def read_plan(path) -> dict:
    """Reads what `heddle export --to dtensor` wrote."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def refuse(plan: dict, why: str):
    """Says that a plan cannot be applied, and what the nearest that can be costs, if the plan knows. Raises ValueError."""
    nearest = plan.get("nearest")
    more = f"; nearest is {nearest['name']}, at {100 * nearest['more']:.1f} % more time" if nearest else ""
    raise ValueError(f"the plan cannot be applied: {why}{more}")


def _frozen(value):
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _placement(text) -> placement:
    row = text if isinstance(text, dict) else {"placement": text}
    kind, dimension = re.fullmatch(r"(\w+)\((\d*)\)", row["placement"]).groups()
    return placement(kind, int(dimension or -1), _frozen(row.get("parts", [])), _frozen(row.get("widths", [])), "gradient" in row)


def _placements(row: list) -> placements:
    return tuple(map(_placement, row))


def _module(row: dict) -> module_row:
    return module_row(tuple(boundary(_placements(b["given"]), _placements(b["used"])) for b in row["inputs"]),
                      tuple(boundary(_placements(b["given"]), _placements(b["made"])) for b in row["outputs"]))


def stage_of(plan: dict) -> stage_plan:
    """The one stage of a plan. Raises ValueError if it has several, or is in micro-batches, or was exported without its model."""
    if len(plan["stages"]) != 1 or plan["micro_batches"] != 1:
        refuse(plan, "it has stages or micro-batches, expected one stage with the whole batch")
    stage = plan["stages"][0]
    if "modules" not in stage:
        raise ValueError("the plan does not say what modules do: export it with --model")
    parameters = {name: parameter(_placements(row["stored"]), _placements(row.get("used", row["stored"])), "gathered" in row)
                  for name, row in stage["parameters"].items()}
    return stage_plan(tuple(stage["mesh"]), {name: _placements(row) for name, row in stage["inputs"].items()}, parameters,
                      {name: _module(row) for name, row in stage["modules"].items()}, _placements(stage["loss"]),
                      stage.get("obstacle", ""))
