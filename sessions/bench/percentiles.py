"""Percentiles of a metric."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sessions.results import Percentiles


def percentiles(values: Sequence[float]) -> Percentiles:
    """p50, p90, p99 and the mean of `values`; all None when there are none."""
    if not values:
        return Percentiles(p50=None, p90=None, p99=None)
    ordered = sorted(values)
    p50, p90, p99 = (quantile(ordered, q) for q in (0.5, 0.9, 0.99))
    return Percentiles(p50=p50, p90=p90, p99=p99, mean=math.fsum(ordered) / len(ordered))


def quantile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of sorted values, linear between order statistics (Hyndman and Fan's type 7)."""
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
