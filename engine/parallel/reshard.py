"""Moves weights rank to rank when the parallelism changes, one unit (a layer, the embedding, the head) at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec
import torch
from torch import Tensor

from engine.checkpoint.parameters import Parameter
from engine.parallel.layout import Layout, Range, held_ranges, local_shape
from engine.parallel.moves import Move, local_offset, moves_of, unit_order


class Exchange(Protocol):
    """Sends and receives (tensor, peer) pairs at once; two ranks list what they share in the same order."""

    def exchange(self, sends: list[tuple[Tensor, int]], receives: list[tuple[Tensor, int]]) -> None: ...


class ReshardReport(msgspec.Struct, frozen=True):
    """Bytes: most held at once beyond the fuller of the two layouts, and received from other ranks."""

    extra_bytes: int
    moved_bytes: int


def reshard(
    parameters: list[Parameter],
    before: Layout,
    after: Layout,
    rank: int,
    weights: dict[str, Tensor],
    device: torch.device,
    type_of: Callable[[Parameter], torch.dtype],
    exchange: Exchange,
    unit_moved: Callable[[], None] = lambda: None,
) -> ReshardReport:
    """Turn `weights` from this rank's slices under `before` into those under `after`, in place of the dict.

    All ranks of the world call it alike. A parameter's old slice is let go as soon as it has moved, and stages take
    turns (unit_order), so a rank holds at most one layer more than the fuller of its two layouts needs.
    """
    units: dict[int, list[Parameter]] = {}
    for parameter in parameters:
        units.setdefault(parameter.unit, []).append(parameter)
    now = start = peak = sum(map(_bytes, weights.values()))
    moved = 0
    for unit in unit_order(before, after):
        for parameter in units[unit]:
            new, staged, received = _move(parameter, before, after, rank, weights, device, type_of(parameter), exchange)
            moved += received
            old = weights.pop(parameter.name, None)
            if new is not None:
                weights[parameter.name] = new
            if new is not old:
                now += _bytes(new)
            peak = max(peak, now + staged)
            if new is not old:
                now -= _bytes(old)
            del old, new
        unit_moved()
    return ReshardReport(extra_bytes=peak - max(start, now), moved_bytes=moved)


def _move(
    parameter: Parameter,
    before: Layout,
    after: Layout,
    rank: int,
    weights: dict[str, Tensor],
    device: torch.device,
    dtype: torch.dtype,
    exchange: Exchange,
) -> tuple[Tensor | None, int, int]:
    """(the new slice, bytes staged for it, bytes received) of one parameter."""
    held, wanted = held_ranges(parameter, before, rank), held_ranges(parameter, after, rank)
    old = weights.get(parameter.name)
    moves = moves_of(parameter, before, after)
    if held == wanted and old is not None:
        new: Tensor | None = old
    else:
        new = torch.empty(local_shape(parameter, wanted), dtype=dtype, device=device) if wanted else None
    axis = parameter.axis or 0
    sends, receives, landings = [], [], []
    for move in moves:
        if move.source == rank and move.target != rank:
            assert old is not None
            sends.append((_part(old, axis, held, move).contiguous(), move.target))
        elif move.target == rank and new is not None and new is not old:
            into = _part(new, axis, wanted, move)
            if move.source == rank:
                assert old is not None
                into.copy_(_part(old, axis, held, move))
                continue
            buffer = into if into.is_contiguous() else torch.empty(into.shape, dtype=dtype, device=device)
            receives.append((buffer, move.source))
            landings.append((into, buffer))
    exchange.exchange(sends, receives)
    staged = sum(_bytes(tensor) for tensor, _ in sends if old is None or not _shares(tensor, old))
    for into, buffer in landings:
        if buffer is not into:
            staged += _bytes(buffer)
            into.copy_(buffer)
    return new, staged, sum(_bytes(tensor) for tensor, _ in receives)


def _part(tensor: Tensor, axis: int, ranges: tuple[Range, ...], move: Move) -> Tensor:
    return tensor.narrow(axis, local_offset(ranges, move.start), move.stop - move.start)


def _bytes(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.numel() * tensor.itemsize


def _shares(tensor: Tensor, other: Tensor) -> bool:
    return tensor.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
