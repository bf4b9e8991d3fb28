"""How many repetitions a decision needs, and what a given number can show.

For normal log values that differ by d standard deviations, a t test needs n = 2 (z_a + z_p)^2 / d^2 + z_a^2 / 4 a side
(Guenther, The American Statistician 35, 1981), z_a and z_p the normal quantiles of 1 - alpha / 2 and of the power; the
Mann-Whitney test needs pi / 3 as many (Lehmann, Nonparametrics, 2.4), and never fewer than any verdict needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist, fmean, variance

from sessions.compare.mann_whitney import smallest_p

POWER = 0.8
MOST = 10_000
ARE = math.pi / 3


def fewest(alpha: float, least_p: Callable[[int], float] = lambda n: smallest_p(n, n)) -> int:
    """Fewest repetitions a side with which any p <= alpha can be reached at all."""
    return next(n for n in range(1, MOST) if least_p(n) <= alpha)


def needed(first: Sequence[float], second: Sequence[float], alpha: float) -> int | None:
    """Repetitions a side to show the difference seen between two samples of log values, with 80 % power at level
    alpha; None when it would take more than 10,000 (in effect: no difference) or when the noise is unknown."""
    spread = _spread(first, second)
    if spread is None:
        return None
    difference = abs(fmean(second) - fmean(first))
    if spread == 0:
        return fewest(alpha) if difference else None
    critical, both = _quantiles(alpha)
    if difference < spread * both / math.sqrt(MOST):
        return None
    count = math.ceil(ARE * (2 * (both * spread / difference) ** 2 + critical**2 / 4))
    return None if count > MOST else max(count, fewest(alpha))


def detectable(first: Sequence[float], second: Sequence[float], alpha: float) -> float | None:
    """The smallest ratio (above 1) that this many repetitions of this noise show with 80 % power; None: none at all."""
    spread = _spread(first, second)
    count = min(len(first), len(second))
    if spread is None or smallest_p(count, count) > alpha:
        return None
    critical, both = _quantiles(alpha)
    left = count / ARE - critical**2 / 4
    return math.exp(both * spread * math.sqrt(2 / left)) if left > 0 else None


def _quantiles(alpha: float) -> tuple[float, float]:
    """z_a, and z_a + z_p."""
    critical = NormalDist().inv_cdf(1 - alpha / 2)
    return critical, critical + NormalDist().inv_cdf(POWER)


def _spread(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pooled standard deviation of one value; None with fewer than 2 values a side."""
    if len(first) < 2 or len(second) < 2:
        return None
    n, m = len(first), len(second)
    return math.sqrt(((n - 1) * variance(first) + (m - 1) * variance(second)) / (n + m - 2))
