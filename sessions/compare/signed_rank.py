"""Wilcoxon's signed-rank test of paired differences, exact, with its Hodges-Lehmann estimate and interval.

Wilcoxon, Biometrics Bulletin 1 (1945). Zero differences take their place in the ranking and then drop out (Pratt,
JASA 54, 1959).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, median
from typing import NamedTuple

from sessions.compare.ranks import doubled_ranks

MAX_EXACT = 60


class SignedRank(NamedTuple):
    """`p` is two-sided; `estimate` the Hodges-Lehmann centre of the differences, with its interval (None: too few)."""

    p: float
    estimate: float
    low: float | None
    high: float | None


def signed_rank(differences: Sequence[float], alpha: float = 0.05) -> SignedRank:
    """Test whether paired differences (at least one) are symmetric about 0."""
    if not differences:
        raise ValueError("at least one difference is needed")
    walsh = sorted((a + b) / 2 for i, a in enumerate(differences) for b in differences[i:])
    cut = _critical(len(differences), alpha)
    low, high = (walsh[cut], walsh[-1 - cut]) if cut is not None else (None, None)
    return SignedRank(_p(differences), median(walsh), low, high)


def smallest_p(n: int) -> float:
    """The least two-sided p that n pairs can reach: all differences of one sign."""
    return min(1.0, 2 / (1 << n))


def _p(differences: Sequence[float]) -> float:
    ranks, _ = doubled_ranks([abs(d) for d in differences])
    statistic = sum(rank if d > 0 else -rank for rank, d in zip(ranks, differences, strict=True) if d != 0)
    live = tuple(sorted(rank for rank, d in zip(ranks, differences, strict=True) if d != 0))
    if not live:
        return 1.0
    if len(live) > MAX_EXACT:
        deviation = math.sqrt(sum(rank * rank for rank in live))
        return min(1.0, 2 * (1 - NormalDist().cdf(abs(statistic) / deviation)))
    counts = _signed_sums(live)
    extreme = sum(count for total, count in counts.items() if abs(total) >= abs(statistic))
    return extreme / (1 << len(live))


@lru_cache(maxsize=256)
def _signed_sums(ranks: tuple[int, ...]) -> dict[int, int]:
    """How many choices of signs give each sum of signed ranks."""
    table = {0: 1}
    for rank in ranks:
        grown: dict[int, int] = {}
        for total, count in table.items():
            for signed in (total + rank, total - rank):
                grown[signed] = grown.get(signed, 0) + count
        table = grown
    return table


@lru_cache(maxsize=256)
def _critical(n: int, alpha: float) -> int | None:
    """The largest c with 2 P(W <= c) <= alpha, W the sum of the positive ranks; None if there is none."""
    if n > MAX_EXACT:
        centre, deviation = n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return max(0, math.floor(centre + NormalDist().inv_cdf(alpha / 2) * deviation - 0.5))
    counts = _signed_sums(tuple(range(1, n + 1)))
    most = n * (n + 1) // 2
    below, cut = 0, None
    for positive in range(most + 1):
        below += counts.get(2 * positive - most, 0)
        if 2 * below > alpha * 2**n:
            break
        cut = positive
    return cut
