"""What travels between ranks when the layout changes: pure, the same list on every rank."""

from __future__ import annotations

import msgspec

from engine.checkpoint.parameters import Parameter
from engine.parallel.layout import Layout, Range, held_ranges


class Move(msgspec.Struct, frozen=True):
    """Entries [start, stop) of a parameter's split axis go from rank `source` to `target` (which may be itself)."""

    source: int
    target: int
    start: int
    stop: int


def moves_of(parameter: Parameter, before: Layout, after: Layout) -> list[Move]:
    """Moves that give every rank of `after` its slice; a rank that has an entry already is its own source.

    Of several other holders the one that comes next after the target is taken, which spreads the sending.
    """
    held = {rank: held_ranges(parameter, before, rank) for rank in range(before.ranks)}
    moves: list[Move] = []
    for target in range(after.ranks):
        order = sorted(held, key=lambda rank: (rank - target) % max(before.ranks, after.ranks))
        for wanted in held_ranges(parameter, after, target):
            at = wanted.start
            while at < wanted.stop:
                source, stop = next((rank, r.stop) for rank in order for r in held[rank] if r.start <= at < r.stop)
                moves.append(Move(source, target, at, min(stop, wanted.stop)))
                at = moves[-1].stop
    return moves


def unit_order(before: Layout, after: Layout) -> list[int]:
    """Units in the order they change hands: each stage in turn gives (or takes) one, so no rank has to hold the new
    slices of many layers before it lets go of its own."""
    staged = before if before.mode == "pp" else after
    queues = [[unit for unit in range(staged.layers + 2) if staged.holds(rank, unit)] for rank in range(staged.ranks)]
    order: list[int] = []
    while any(queues):
        order += [queue.pop(0) for queue in queues if queue]
    return order


def local_offset(ranges: tuple[Range, ...], entry: int) -> int:
    """Where a global entry of the split axis lies in a rank's slice. Raise KeyError when it is not held."""
    offset = 0
    for held in ranges:
        if held.start <= entry < held.stop:
            return offset + entry - held.start
        offset += len(held)
    raise KeyError(entry)
