"""Sets of time as arrays of intervals: int64, shape [n, 2] of (start, end) in ns, sorted, disjoint, none empty."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Times: TypeAlias = "NDArray[np.int64]"
Intervals: TypeAlias = "NDArray[np.int64]"

EMPTY: Intervals = np.zeros((0, 2), dtype=np.int64)


def union(starts: Times, ends: Times) -> Intervals:
    """The set covered by any of the intervals [starts[i], ends[i]), which may overlap and come in any order."""
    keep = ends > starts
    starts, ends = starts[keep], ends[keep]
    if not len(starts):
        return EMPTY
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    first = np.concatenate(([True], starts[1:] > ends[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.stack((starts[first], ends[last]), axis=1)


def of(pairs: Iterable[tuple[int, int]]) -> Intervals:
    """The set covered by any of these (start, end) pairs."""
    array = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
    return union(array[:, 0], array[:, 1])


def both(a: Intervals, b: Intervals) -> Intervals:
    """The set that lies in `a` and in `b`."""
    return _where(a, b, want_b=True)


def without(a: Intervals, b: Intervals) -> Intervals:
    """The set that lies in `a` and not in `b`."""
    return _where(a, b, want_b=False)


def joined(*sets: Intervals) -> Intervals:
    """The set that lies in any of `sets`."""
    stacked = np.concatenate(sets) if sets else EMPTY
    return union(stacked[:, 0], stacked[:, 1])


def clip(a: Intervals, start: int, end: int) -> Intervals:
    """The part of `a` inside [start, end)."""
    return both(a, np.array([[start, end]], dtype=np.int64)) if end > start else EMPTY


def total(a: Intervals) -> int:
    """The length of the set, in ns."""
    return int((a[:, 1] - a[:, 0]).sum())


def _where(a: Intervals, b: Intervals, want_b: bool) -> Intervals:
    if not len(a) or not len(b):
        return EMPTY if want_b else a
    edges = np.sort(np.concatenate((a.ravel(), b.ravel())))  # what lies between two equal ones is empty: union drops it
    left = edges[:-1]
    keep = _inside(a, left) & (_inside(b, left) == want_b)
    return union(left[keep], edges[1:][keep])


def _inside(a: Intervals, points: Times) -> NDArray[np.bool_]:
    index = np.searchsorted(a[:, 0], points, side="right") - 1
    inside: NDArray[np.bool_] = (index >= 0) & (points < a[np.maximum(index, 0), 1])
    return inside
