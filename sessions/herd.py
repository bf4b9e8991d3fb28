"""Herd metrics of an instant: how evenly decode requests are spread over slots (Pipeline theory, docs/theory.md)."""

from __future__ import annotations

from collections.abc import Sequence


def waves(sizes: Sequence[int]) -> float | None:
    """N_eff = 1 / sum (n_j / C)^2, the number of equal waves that would be as concentrated; None when C = 0."""
    total = sum(sizes)
    if total == 0:
        return None
    return total * total / sum(n * n for n in sizes)


def herd_index(sizes: Sequence[int], stages: int) -> float | None:
    """H of `sizes` requests per bin on `stages` stages: 0 evenly staggered, 1 one herd.

    H = clip((HHI - HHI_min) / (1 - HHI_min), 0, 1) with HHI = sum (n_j / C)^2 and HHI_min that of the best split of C
    over K = min(C, stages) bins. None where it says nothing: fewer than 2 requests, or fewer than 2 stages.
    """
    total = sum(sizes)
    bins = min(total, stages)
    if bins < 2:
        return None
    concentration = sum(n * n for n in sizes) / (total * total)
    least = _even_split_concentration(total, bins)
    return min(1.0, max(0.0, (concentration - least) / (1.0 - least)))


def _even_split_concentration(total: int, bins: int) -> float:
    share, left = divmod(total, bins)
    return (left * (share + 1) ** 2 + (bins - left) * share * share) / (total * total)
