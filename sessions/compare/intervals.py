"""The median of a sample and its distribution-free confidence interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

FEWEST = 6
"""Fewest values whose smallest and largest enclose the median with 95 % confidence: 1 - 2^(1 - n) >= 0.95."""


class Median(NamedTuple):
    """A sample's median, its 95 % interval from order statistics (None: fewer than 6 values), and how many values."""

    value: float
    low: float | None
    high: float | None
    samples: int


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Median:
    """The median and the narrowest pair of order statistics [x(k), x(n+1-k)] that covers it with `confidence`.

    The coverage is 1 - 2 P(B < k), B binomial (n, 1/2) (Conover, Practical Nonparametric Statistics, 3.2).
    """
    ordered = sorted(values)
    count = len(ordered)
    below, rank = 0.0, 0
    for k in range(1, count // 2 + 1):
        below += math.comb(count, k - 1) / 2**count
        if 1 - 2 * below < confidence:
            break
        rank = k
    if not rank:
        return Median(median(ordered), None, None, count)
    return Median(median(ordered), ordered[rank - 1], ordered[count - rank], count)
