"""A figure with the band that it is believed to lie in."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Band(msgspec.Struct, frozen=True):
    """low <= mid <= high."""

    low: float
    mid: float
    high: float

    def __str__(self) -> str:
        return f"{self.mid:.3g} ({self.low:.3g}-{self.high:.3g})"

    def map(self, function: Callable[[float], float]) -> Band:
        """The band of a monotonic function's values."""
        return ordered(function(self.low), function(self.mid), function(self.high))

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high


def exactly(value: float) -> Band:
    return Band(value, value, value)


def ordered(one_end: float, mid: float, other_end: float) -> Band:
    """A band from its middle and its two ends in either order; widened to hold the middle."""
    return Band(min(one_end, other_end, mid), mid, max(one_end, other_end, mid))


def around(mid: float, share: float) -> Band:
    """mid / (1 + share) to mid x (1 + share): the same factor either way."""
    return Band(mid / (1.0 + share), mid, mid * (1.0 + share))
