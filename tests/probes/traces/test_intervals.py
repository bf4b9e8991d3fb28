"""Interval sets against brute force over small integers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from probes.traces import intervals
from probes.traces.intervals import Intervals

PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


def _points(pairs: list[tuple[int, int]]) -> set[int]:
    return {point for start, end in pairs for point in range(start, end)}


def _members(found: Intervals) -> set[int]:
    return {point for start, end in found.tolist() for point in range(start, end)}


@given(PAIRS)
def test_union_covers_the_same_points(pairs: list[tuple[int, int]]) -> None:
    found = intervals.of(pairs)
    assert _members(found) == _points(pairs)
    assert np.all(found[1:, 0] > found[:-1, 1]), "disjoint, sorted, and nothing that touches is left apart"
    assert intervals.total(found) == len(_points(pairs))


@given(PAIRS, PAIRS)
def test_set_operations(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    first, second = intervals.of(a), intervals.of(b)
    assert _members(intervals.both(first, second)) == _points(a) & _points(b)
    assert _members(intervals.without(first, second)) == _points(a) - _points(b)
    assert _members(intervals.joined(first, second)) == _points(a) | _points(b)


@given(PAIRS, st.integers(0, 40), st.integers(0, 40))
def test_clip(pairs: list[tuple[int, int]], start: int, end: int) -> None:
    assert _members(intervals.clip(intervals.of(pairs), start, end)) == _points(pairs) & set(range(start, end))
