"""Holm's correction for testing several hypotheses at once (Scandinavian Journal of Statistics 6, 1979)."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values, in the given order: rejecting those at most alpha keeps the chance of any false rejection at
    most alpha."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for place, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = running
    return adjusted
