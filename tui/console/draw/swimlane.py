"""What each cell of a lane shows: the slot that held the rank longest in the cell's time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tui.console.store.lanes import LaneSpan

NICE = (1, 2, 5)


class Cell(NamedTuple):
    """`share` is how much of the cell's time was held by any micro-batch; `first` when one of the slot begins here."""

    slot: int
    share: float
    prefill: bool
    first: bool


def cells(spans: Sequence[LaneSpan], start_ns: int, column_ns: int, count: int) -> list[Cell | None]:
    """`count` cells of `column_ns` each from `start_ns` on; None where nothing was held. Spans are in time order."""
    held: list[dict[LaneSpan, int] | None] = [None] * count
    for span in spans:
        first = max(0, (span.ready - start_ns) // column_ns)
        last = min(count - 1, (span.end - 1 - start_ns) // column_ns)
        for column in range(first, last + 1):
            begin = start_ns + column * column_ns
            part = min(span.end, begin + column_ns) - max(span.ready, begin)
            shares = held[column]
            if shares is None:
                shares = held[column] = {}
            shares[span] = part
    return [_cell(shares, start_ns + i * column_ns, column_ns) if shares else None for i, shares in enumerate(held)]


def _cell(shares: dict[LaneSpan, int], begin_ns: int, column_ns: int) -> Cell:
    longest = max(shares, key=shares.__getitem__)
    return Cell(
        longest.slot,
        min(1.0, sum(shares.values()) / column_ns),
        longest.prefill_tokens > 0,
        longest.ready >= begin_ns,
    )


def nice_ns(at_least_ns: float) -> int:
    """The smallest 1, 2 or 5 times a power of ten that is at least `at_least_ns`, and at least 1."""
    power = 1
    while True:
        for factor in NICE:
            if factor * power >= at_least_ns:
                return factor * power
        power *= 10
