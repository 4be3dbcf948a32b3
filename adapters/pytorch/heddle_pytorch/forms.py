# SPDX-License-Identifier: BSL-1.0
"""How tensors go from one form to another along an axis of a mesh, in parts of any sizes, and how their gradients go back."""
from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from .plans import placement, placements


@dataclass(frozen=True)
class line:
    """The ranks along one axis of a mesh, through this rank, which has a place on each axis."""

    axis: int
    place: tuple[int, ...]
    group: dist.ProcessGroup

    @property
    def rank(self) -> int:
        return self.place[self.axis]

    @property
    def size(self) -> int:
        return dist.get_world_size(self.group)

    def member(self, rank: int) -> int:
        """The number of one of the line's ranks among all processes."""
        return dist.get_global_rank(self.group, rank)


class cut:
    """How a line of ranks divides the rows of a dimension."""

    def __init__(self, part: placement, along: line):
        self.dimension = part.dimension
        self.rows, self.widths = part.rows(along.axis, along.place), part.pieces(along.axis, along.place)

    def _order(self, device) -> Tensor | None:
        """Where the rows of the ranks, one after the other, are in the dimension; None if they are so themselves."""
        if not self.widths:
            return None
        step = sum(self.widths)
        counts = [rows // step for rows in self.rows]
        pieces = torch.arange(sum(self.rows), device=device).split([sum(counts) * width for width in self.widths])
        by_rank = zip(*(piece.split([n * width for n in counts]) for piece, width in zip(pieces, self.widths)))
        return torch.cat([rows for of_rank in by_rank for rows in of_rank])

    def split(self, tensor: Tensor) -> list[Tensor]:
        """The parts of a tensor, by rank."""
        order = self._order(tensor.device)
        tensor = tensor if order is None else tensor.index_select(self.dimension, order)
        return [part.contiguous() for part in tensor.split(self.rows, self.dimension)]

    def join(self, parts: list[Tensor]) -> Tensor:
        tensor = torch.cat(parts, self.dimension)
        order = self._order(tensor.device)
        return tensor if order is None else tensor.index_select(self.dimension, order.argsort())

    def empty(self, like: Tensor, rank: int) -> Tensor:
        """Room for the part of a rank; `like` is another part."""
        shape = list(like.shape)
        shape[self.dimension] = self.rows[rank]
        return like.new_empty(shape)


def _gather(part: Tensor, of: cut, along: line) -> Tensor:
    pieces = [part.contiguous() if rank == along.rank else of.empty(part, rank) for rank in range(along.size)]
    for rank, piece in enumerate(pieces):
        if piece.numel():
            dist.broadcast(piece, along.member(rank), group=along.group)
    return of.join(pieces)


def _reduce_scatter(summand: Tensor, of: cut, along: line) -> Tensor:
    pieces = of.split(summand)
    pieces = [piece.clone() for piece in pieces]  # a sum takes the place of what it is of
    for rank, piece in enumerate(pieces):
        if piece.numel():
            dist.reduce(piece, along.member(rank), group=along.group)
    return pieces[along.rank]


def _all_reduce(summand: Tensor, along: line) -> Tensor:
    total = summand.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=along.group)
    return total


def _all_to_all(part: Tensor, before: cut, after: cut, along: line) -> Tensor:
    sent = after.split(part)
    received = [before.empty(sent[along.rank], rank) for rank in range(along.size)]
    flat = part.new_empty(sum(piece.numel() for piece in received))
    dist.all_to_all_single(flat, torch.cat([piece.reshape(-1) for piece in sent]), [piece.numel() for piece in received],
                           [piece.numel() for piece in sent], group=along.group)
    return before.join([values.view_as(piece) for values, piece in zip(flat.split([p.numel() for p in received]), received)])


def moved(tensor: Tensor, before: placement, after: placement, along: line) -> Tensor:
    """A tensor that the ranks of a line hold in one form, in the other."""
    if after.is_part:
        to = cut(after, along)
        if not before.is_part:
            return to.split(tensor)[along.rank] if before.kind == "Replicate" else _reduce_scatter(tensor, to, along)
        if before == after:
            return tensor
        of = cut(before, along)
        if of.dimension == to.dimension:
            return to.split(_gather(tensor, of, along))[along.rank]
        return _all_to_all(tensor, of, to, along)
    if before.is_part:
        of = cut(before, along)
        if after.kind == "Replicate":
            return _gather(tensor, of, along)
        others = [tensor if rank == along.rank else torch.zeros_like(of.empty(tensor, rank)) for rank in range(along.size)]
        return of.join(others)
    if before.kind == after.kind:
        return tensor
    return _all_reduce(tensor, along) if after.kind == "Replicate" else tensor / along.size


class _conversion(torch.autograd.Function):
    """The gradient of a tensor that goes from one form to another goes from the dual of the other to that of the one."""

    @staticmethod
    def forward(ctx, tensor, before, after, along):
        ctx.way = after.dual(), before.dual(), along
        result = moved(tensor, before, after, along)
        return result.view_as(result) if result is tensor else result

    @staticmethod
    def backward(ctx, gradient):
        return moved(gradient, *ctx.way), None, None, None


def converted(tensor: Tensor, before: placements, after: placements, lines: list[line]) -> Tensor:
    """A tensor in another form along each axis, differentiably, innermost axes first."""
    for along in reversed(lines):
        one, other = before[along.axis], after[along.axis]
        if one != other:
            tensor = _conversion.apply(tensor, one, other, along)
    return tensor


def part_of(tensor: Tensor, form: placements, lines: list[line]) -> Tensor:
    """This rank's part of a whole tensor."""
    for along in lines:
        if form[along.axis].is_part:
            tensor = cut(form[along.axis], along).split(tensor)[along.rank]
    return tensor
