"""Gaps between arrivals of processes of unit rate (mean gap 1)."""

from __future__ import annotations

import random
from collections.abc import Iterator


def poisson_gaps(seed: int) -> Iterator[float]:
    """Independent arrivals: exponential gaps."""
    rng = random.Random(f"{seed}/poisson")
    while True:
        yield rng.expovariate(1.0)


def bursty_gaps(seed: int, variation: float) -> Iterator[float]:
    """Gamma-distributed gaps with this coefficient of variation: above 1 arrivals bunch, below 1 they spread, 1 is
    Poisson. Shape 1/cv^2, scale cv^2."""
    if variation <= 0:
        raise ValueError(f"the coefficient of variation of the gaps must be above 0, not {variation}")
    rng = random.Random(f"{seed}/gamma")
    while True:
        yield rng.gammavariate(variation**-2, variation**2)
