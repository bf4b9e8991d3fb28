"""Quantiles of an array. numpy's own import its module of masked arrays, which takes longer than to diagnose a small
trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def quantile(values: NDArray[Any], share: float) -> float:
    """The value that `share` (0 to 1) of at least one `values`, none NaN, lie below; linear between two values."""
    ordered = np.sort(values)
    at = share * (len(ordered) - 1)
    below = int(at)
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    return low + (at - below) * (high - low)


def median(values: NDArray[Any]) -> float:
    """The middle one of at least one value, or the mean of the two in the middle."""
    return quantile(values, 0.5)
