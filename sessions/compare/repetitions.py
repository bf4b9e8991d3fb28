"""How many repetitions a decision needs, and what a given number can show.

Noether's sample size for the Mann-Whitney test, n per side = (z_alpha/2 + z_power)^2 / (6 (P - 1/2)^2) with
P = P(b > a) (JASA 82, 1987); for normal log values a shift of d standard deviations has P = Phi(d / sqrt 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist, fmean, variance

from sessions.compare.mann_whitney import smallest_p

POWER = 0.8
MOST = 10_000
_NORMAL = NormalDist()


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
    probability = _NORMAL.cdf(difference / spread / math.sqrt(2))
    if probability <= 0.5:
        return None
    count = math.ceil(_noether(alpha) / (6 * (probability - 0.5) ** 2))
    return None if count > MOST else max(count, fewest(alpha))


def detectable(first: Sequence[float], second: Sequence[float], alpha: float) -> float | None:
    """The smallest ratio (above 1) that this many repetitions of this noise show with 80 % power; None: none at all."""
    spread = _spread(first, second)
    count = min(len(first), len(second))
    if spread is None or smallest_p(count, count) > alpha:
        return None
    probability = 0.5 + math.sqrt(_noether(alpha) / (6 * count))
    if probability >= 1:
        return None
    return math.exp(math.sqrt(2) * _NORMAL.inv_cdf(probability) * spread)


def _noether(alpha: float) -> float:
    return (_NORMAL.inv_cdf(1 - alpha / 2) + _NORMAL.inv_cdf(POWER)) ** 2


def _spread(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pooled standard deviation of one value; None with fewer than 2 values a side."""
    if len(first) < 2 or len(second) < 2:
        return None
    n, m = len(first), len(second)
    return math.sqrt(((n - 1) * variance(first) + (m - 1) * variance(second)) / (n + m - 2))
