"""How many distinct experts a batch touches, and how unevenly ranks that split the experts are loaded."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache

_GRID = 160


def distinct_experts(experts: int, top_k: int, tokens: int, skew: float = 0.0) -> float:
    """Expected distinct experts that `tokens` tokens touch, each routed to `top_k` of `experts`.

    Uniform routing: D(b) = E (1 - (1 - k/E)^b). With a Zipf skew: sum over experts of 1 - (1 - q_e)^b, q_e being
    expert e's chance to be among a token's k (Pipeline theory, docs/theory.md).
    """
    if not experts or not tokens:
        return 0.0
    if skew == 0.0:
        return experts * (1.0 - (1.0 - top_k / experts) ** tokens)
    return sum(1.0 - (1.0 - q) ** tokens for q in inclusion(experts, top_k, skew))


@lru_cache(maxsize=64)
def inclusion(experts: int, top_k: int, skew: float) -> tuple[float, ...]:
    """Each expert's chance q_e to be chosen by a token, summing to `top_k`: popularity e^-skew, none above 1.

    Where the popular ones would exceed 1 they are set to 1 and the rest of k is shared out again.
    """
    weights = [(e + 1.0) ** -skew for e in range(experts)]
    certain = 0
    while certain < top_k:
        scale = (top_k - certain) / sum(weights[certain:])
        if weights[certain] * scale <= 1.0:
            return (1.0,) * certain + tuple(w * scale for w in weights[certain:])
        certain += 1
    return (1.0,) * top_k + (0.0,) * (experts - top_k)


@lru_cache(maxsize=65536)
def rank_experts(experts: int, top_k: int, tokens: int, skew: float, ranks: int) -> tuple[float, ...]:
    """Expected distinct experts on each of `ranks` ranks that hold consecutive, equal shares of the experts."""
    if skew == 0.0:
        return (distinct_experts(experts, top_k, tokens) / ranks,) * ranks
    touched = [1.0 - (1.0 - q) ** tokens for q in inclusion(experts, top_k, skew)]
    return tuple(sum(touched[e] for e in _share(experts, ranks, r)) for r in range(ranks))


@lru_cache(maxsize=65536)
def busiest_rank_experts(experts: int, top_k: int, tokens: int, skew: float, ranks: int) -> float:
    """Expected distinct experts on the rank that has most of them: what a layer waits for under expert parallelism.

    Each rank's count is taken as normal with the variance of independent touches, less the negative correlation that
    a fixed number of choices a token brings; E[max] = integral of x d(prod_r Phi((x - mu_r) / sigma_r)).
    """
    means = rank_experts(experts, top_k, tokens, skew, ranks)
    if ranks == 1 or tokens == 0:
        return max(means)
    chances = inclusion(experts, top_k, skew)
    apart = 1.0 - _pair_correlation(experts, top_k, tokens)
    deviations = []
    for r in range(ranks):
        missed = [(1.0 - chances[e]) ** tokens for e in _share(experts, ranks, r)]
        deviations.append(math.sqrt(max(apart * sum(m * (1.0 - m) for m in missed), 1e-12)))
    return min(_expected_max(means, deviations), tokens * top_k, math.ceil(experts / ranks))


def _pair_correlation(experts: int, top_k: int, tokens: int) -> float:
    """Correlation rho (at most 0) of two experts' touches under uniform routing; with skew it stands in.

    cov = [(1 - k/E)(1 - k/(E-1))]^b - (1 - k/E)^2b for every pair, so a rank's variance around the mean that all ranks
    share is that of independent touches times 1 - rho.
    """
    if experts < 2 or top_k >= experts:
        return 0.0
    missed = (1.0 - top_k / experts) ** tokens
    both = ((1.0 - top_k / experts) * (1.0 - top_k / (experts - 1))) ** tokens
    variance = missed * (1.0 - missed)
    return (both - missed * missed) / variance if variance > 0.0 else 0.0


def _expected_max(means: tuple[float, ...], deviations: list[float]) -> float:
    ranks = Counter(zip(means, deviations, strict=True))
    low = min(m - 5.0 * s for m, s in ranks)
    high = max(m + 5.0 * s for m, s in ranks)
    step = (high - low) / _GRID
    expected = low
    for i in range(_GRID):
        x = low + (i + 0.5) * step
        below = 1.0
        for (mean, deviation), count in ranks.items():
            below *= (0.5 * math.erfc((mean - x) / (deviation * math.sqrt(2.0)))) ** count
        expected += (1.0 - below) * step
    return expected


def _share(experts: int, ranks: int, rank: int) -> range:
    return range(experts * rank // ranks, experts * (rank + 1) // ranks)
