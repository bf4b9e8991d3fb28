"""Ranks of values, with ties."""

from __future__ import annotations

from collections.abc import Sequence


def doubled_ranks(values: Sequence[float]) -> tuple[list[int], list[int]]:
    """Twice the mean rank of each value (so that it is whole), and the size of each group of equal values."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks, ties = [0] * len(values), []
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for place in order[start:end]:
            ranks[place] = start + 1 + end
        ties.append(end - start)
        start = end
    return ranks, ties
