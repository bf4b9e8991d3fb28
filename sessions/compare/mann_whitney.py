"""The Mann-Whitney U test, exact, with the Hodges-Lehmann shift and its confidence interval.

Mann and Whitney, Annals of Mathematical Statistics 18 (1947); Hodges and Lehmann, ibid. 34 (1963). Ties take their
mean rank and the exact distribution is that over all assignments of those ranks, so that it holds with ties too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, median
from typing import NamedTuple

from sessions.compare.ranks import doubled_ranks

MAX_EXACT = 60
"""Most values in both samples together for which the distribution is worked out exactly; normal beyond."""


class UTest(NamedTuple):
    """`superiority` is the share of pairs in which a value of the second sample exceeds one of the first (ties half):
    0.5 when neither is larger. `p` is two-sided."""

    superiority: float
    p: float


class Shift(NamedTuple):
    """Second sample minus first: the Hodges-Lehmann estimate and its interval, None where too few values give one."""

    estimate: float
    low: float | None
    high: float | None


def u_test(first: Sequence[float], second: Sequence[float]) -> UTest:
    """Test whether two samples of at least one value each come from the same distribution."""
    n, m = len(first), len(second)
    if not n or not m:
        raise ValueError("both samples need at least one value")
    ranks, ties = doubled_ranks([*first, *second])
    statistic = sum(ranks[n:])
    twice_u = statistic - m * (m + 1)
    superiority = twice_u / 2 / (n * m)
    if n + m > MAX_EXACT:
        return UTest(superiority, _normal_p(twice_u / 2, n, m, ties))
    counts = _rank_sums(tuple(sorted(ranks)), m)
    centre = sum(ranks) * m
    distance = abs(statistic * (n + m) - centre)
    extreme = sum(count for total, count in counts.items() if abs(total * (n + m) - centre) >= distance)
    return UTest(superiority, extreme / math.comb(n + m, m))


def shift(first: Sequence[float], second: Sequence[float], alpha: float = 0.05) -> Shift:
    """Estimate by how much the second sample exceeds the first, with an interval of confidence 1 - alpha or more."""
    differences = sorted(b - a for a in first for b in second)
    estimate = median(differences)
    cut = _critical(len(first), len(second), alpha)
    if cut is None:
        return Shift(estimate, None, None)
    return Shift(estimate, differences[cut], differences[-1 - cut])


def smallest_p(n: int, m: int) -> float:
    """The least two-sided p that samples of these sizes can reach: complete separation."""
    return min(1.0, 2 / math.comb(n + m, n))


@lru_cache(maxsize=256)
def _critical(n: int, m: int, alpha: float) -> int | None:
    """The largest c with 2 P(U <= c) <= alpha, None if there is none."""
    if n + m > MAX_EXACT:
        deviation = math.sqrt(n * m * (n + m + 1) / 12)
        return max(0, math.floor(n * m / 2 + NormalDist().inv_cdf(alpha / 2) * deviation - 0.5))
    counts = _rank_sums(tuple(range(2, 2 * (n + m) + 1, 2)), m)
    total, below, cut = math.comb(n + m, m), 0, None
    for u in range(n * m + 1):
        below += counts[2 * u + m * (m + 1)]
        if 2 * below > alpha * total:
            break
        cut = u
    return cut


@lru_cache(maxsize=256)
def _rank_sums(ranks: tuple[int, ...], chosen: int) -> dict[int, int]:
    """How many subsets of `chosen` ranks have each sum."""
    table: list[dict[int, int]] = [{0: 1}] + [{} for _ in range(chosen)]
    for rank in ranks:
        for size in range(chosen, 0, -1):
            into = table[size]
            for total, count in table[size - 1].items():
                into[total + rank] = into.get(total + rank, 0) + count
    return table[chosen]


def _normal_p(u: float, n: int, m: int, ties: Sequence[int]) -> float:
    """Two-sided p by the normal approximation, corrected for ties and continuity."""
    total = n + m
    tied = sum(t**3 - t for t in ties) / (total * (total - 1))
    variance = n * m / 12 * (total + 1 - tied)
    if variance <= 0:
        return 1.0
    distance = max(0.0, abs(u - n * m / 2) - 0.5)
    return min(1.0, 2 * (1 - NormalDist().cdf(distance / math.sqrt(variance))))
