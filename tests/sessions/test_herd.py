"""The herd metrics against their identities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions import herd


@pytest.mark.parametrize(
    ("counts", "index"),
    [
        ([8, 0, 0, 0, 0, 0, 0, 0], 1.0),
        ([4, 4, 0, 0, 0, 0, 0, 0], 0.429),
        ([2, 2, 2, 2, 0, 0, 0, 0], 0.143),
        ([5, 1, 1, 1, 0, 0, 0, 0], 0.357),
        ([1, 1, 1, 1, 1, 1, 1, 1], 0.0),
    ],
)
def test_herd_index_of_known_spreads(counts: list[int], index: float) -> None:
    assert herd.herd_index(counts, len(counts)).value == pytest.approx(index, abs=5e-4)


@given(st.lists(st.integers(0, 40), min_size=2, max_size=12).filter(lambda counts: sum(counts) >= 2))
def test_herd_index_is_bounded_blind_to_order_and_zero_for_the_best_split(counts: list[int]) -> None:
    stages = len(counts)
    value = herd.herd_index(counts, stages).value
    assert value is not None and 0.0 <= value <= 1.0
    assert herd.herd_index(counts[::-1], stages).value == pytest.approx(value)
    each, extra = divmod(sum(counts), len(counts))
    even = [each + (i < extra) for i in range(len(counts))]
    assert herd.herd_index(even, stages).value == pytest.approx(0.0, abs=1e-12)
    assert herd.herd_index([sum(counts)], stages).value == pytest.approx(1.0)


def test_more_groups_than_stages_are_no_herd_and_one_slot_is_one() -> None:
    assert herd.herd_index([2] * 16, 8).value == 0.0
    assert herd.herd_index([32], 8).value == 1.0


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(lambda counts: sum(counts) >= 1))
def test_waves_are_between_one_and_the_filled_bins(counts: list[int]) -> None:
    value = herd.waves(counts).value
    assert value is not None
    assert 1.0 - 1e-9 <= value <= sum(n > 0 for n in counts) + 1e-9


def test_waves_count_equal_groups() -> None:
    assert herd.waves([16, 0, 0, 0]).value == 1.0
    assert herd.waves([4, 4, 4, 4]).value == 4.0


def test_undefined_values_say_why() -> None:
    assert "two are needed" in herd.herd_index([1, 0], 2).why
    assert "one stage" in herd.herd_index([7], 1).why
    assert herd.waves([0, 0]).value is None
    assert herd.random_line(1).value is None
    assert herd.lock_step(herd.Activity(1, 1), live=1, stages=8).value is None
    assert "cycles" in herd.burst([0, 1, 2], cycle=1.0, stages=2, live=2).why


def test_random_line() -> None:
    assert herd.random_line(16).value == 0.125


def _lap(stages: int, groups: int, laps: int) -> list[list[tuple[int, int]]]:
    """`groups` micro-batches, one tick a stage, started one tick after another, `laps` times round."""
    held: list[list[tuple[int, int]]] = [[] for _ in range(stages)]
    for lap in range(laps):
        for group in range(groups):
            for stage in range(stages):
                start = lap * stages + group + stage
                held[stage].append((start, start + 1))
    return held


def test_one_wave_is_in_lock_step_and_full_pipeline_is_not() -> None:
    window = (8, 8 * 20)
    one = herd.activity(_lap(8, 1, 21), *window)
    full = herd.activity(_lap(8, 8, 21), *window)
    assert one is not None and full is not None
    assert herd.lock_step(one, live=16, stages=8).value == pytest.approx(1.0)
    assert herd.lock_step(full, live=16, stages=8).value == pytest.approx(0.0)
    assert herd.utilisation(one, 8).value == pytest.approx(1 / 8)
    assert herd.utilisation(full, 8).value == pytest.approx(1.0)


def test_activity_ignores_what_is_outside_and_merges_what_overlaps() -> None:
    when = herd.activity([[(-5, 2), (1, 4)], [(3, 4)], [(90, 99)]], 0, 10)
    assert when == herd.Activity(mean=0.5, mean_when_active=5 / 4)
    assert herd.activity([[(20, 30)]], 0, 10) is None


@pytest.mark.parametrize(("groups", "index"), [(1, 1.0), (2, 3 / 7), (4, 1 / 7), (8, 0.0)])
def test_burst_of_equal_groups(groups: int, index: float) -> None:
    """p = K = 8: g equal groups evenly spaced fill g of 8 bins, so CV^2 = 8 / g - 1."""
    times = [
        lap * 800 + group * (800 // groups) for lap in range(50) for group in range(groups) for _ in range(8 // groups)
    ]
    times.append(50 * 800)
    assert herd.burst(times, cycle=800, stages=8, live=8).value == pytest.approx(index)


@pytest.mark.parametrize("pause", [3, 40])
def test_a_pause_is_not_a_burst(pause: int) -> None:
    """Four stages, a token each quarter of a cycle, and now and then nothing for several cycles."""
    times = [lap * 400 + stage * 100 + (lap // 10) * pause * 400 for lap in range(50) for stage in range(4)]
    assert herd.burst(times, cycle=400, stages=4, live=4).value == pytest.approx(0.0, abs=0.05)


def test_burst_of_fewer_requests_than_stages_is_zero_when_staggered() -> None:
    times = [lap * 800 + group * 400 for lap in range(50) for group in range(2)] + [50 * 800]
    assert herd.burst(times, cycle=800, stages=8, live=2).value == pytest.approx(0.0)
