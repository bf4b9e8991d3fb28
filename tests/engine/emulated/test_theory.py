"""The closed forms against the max-plus recursion and against brute force."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.emulated.pipeline import Cohort, Pipeline, steady_state
from engine.emulated.theory import (
    bubble,
    cycle_time,
    deherding_gain,
    effective_stages,
    lap_time,
    throughput,
    uneven_cycle_bound,
)

TAU = st.floats(0.1, 10.0)
EXTRA = st.floats(0.0, 3.0)


def brute_force_cycle(taus: list[list[float]], hop: float, feedback: float, rounds: int = 400) -> float:
    """Event by event: each stage serves what has come, in the order of its coming."""
    stages, count = len(taus[0]), len(taus)
    back = hop if stages > 1 else 0.0
    events = [(0.0, index, 0, index) for index in range(count)]
    heapq.heapify(events)
    free = [0.0] * stages
    laps = [0] * count
    half: list[float] = [0.0] * count
    while events:
        now, turn, stage, index = heapq.heappop(events)
        start = max(now, free[stage])
        end = start + taus[index][stage]
        free[stage] = end
        if stage + 1 < stages:
            heapq.heappush(events, (end + hop, turn, stage + 1, index))
            continue
        laps[index] += 1
        if laps[index] == rounds // 2:
            half[index] = end
        if laps[index] == rounds:
            return (end - half[index]) / (rounds - rounds // 2)
        heapq.heappush(events, (end + back + feedback, turn + count, 0, index))
    raise AssertionError("the pipeline ran dry")


def recursion(taus: list[list[float]], hop: float, feedback: float) -> float:
    stages = len(taus[0])
    back = hop if stages > 1 else 0.0
    return steady_state([Cohort(1, tuple(row)) for row in taus], [hop] * (stages - 1), back + feedback).cycle


@given(tau=st.lists(TAU, min_size=1, max_size=9), m=st.integers(1, 20), hop=EXTRA, feedback=EXTRA)
@settings(max_examples=80, deadline=None)
def test_the_cycle_of_equal_micro_batches_is_exact(tau: list[float], m: int, hop: float, feedback: float) -> None:
    closed = cycle_time(tau, m, hop, feedback)
    assert recursion([tau] * m, hop, feedback) == pytest.approx(closed, rel=1e-6)
    assert brute_force_cycle([tau] * m, hop, feedback) == pytest.approx(closed, rel=1e-2)
    assert throughput(m, tau, m, hop, feedback) == pytest.approx(m / closed)


@given(tau=st.lists(TAU, min_size=1, max_size=9), m=st.integers(1, 20), hop=EXTRA, feedback=EXTRA)
@settings(max_examples=60, deadline=None)
def test_the_bubble_is_what_the_slowest_stage_idles(tau: list[float], m: int, hop: float, feedback: float) -> None:
    hops = [hop] * (len(tau) - 1)
    steady = steady_state([Cohort(1, tuple(tau))] * m, hops, (hop if hops else 0.0) + feedback)
    assert 1.0 - max(steady.occupancy) == pytest.approx(bubble(tau, m, hop, feedback), abs=1e-6)
    if m >= effective_stages(tau, hop, feedback):
        assert bubble(tau, m, hop, feedback) == 0.0


def test_equal_stages_have_p_eff_of_p_plus_the_links() -> None:
    assert effective_stages([2.0] * 8, 0.5, 1.0) == pytest.approx(8 + (8 * 0.5 + 1.0) / 2.0)
    assert lap_time([3.0], hop=9.0, feedback=1.0) == 4.0


@given(
    rows=st.lists(st.lists(TAU, min_size=4, max_size=4), min_size=1, max_size=8),
    hop=EXTRA,
    feedback=EXTRA,
)
@settings(max_examples=60, deadline=None)
def test_uneven_micro_batches_never_beat_the_bound(rows: list[list[float]], hop: float, feedback: float) -> None:
    bound = uneven_cycle_bound(rows, hop, feedback)
    cycle = recursion(rows, hop, feedback)
    assert cycle >= bound * (1 - 1e-9)
    assert brute_force_cycle(rows, hop, feedback) == pytest.approx(cycle, rel=2e-2)


def test_the_bound_can_be_far_short() -> None:
    rows = [[1.0, 1.0, 1.0, 2.0], [1.0, 4.0, 1.0, 5.0], [1.0, 5.0, 5.0, 0.5], [1.0, 1.0, 4.0, 4.0]]
    assert uneven_cycle_bound(rows) == 11.5
    assert recursion(rows, 0.0, 0.0) == pytest.approx(15.0)
    assert brute_force_cycle(rows, 0.0, 0.0) == pytest.approx(15.0, rel=1e-2)


@given(
    sizes=st.lists(TAU, min_size=1, max_size=8),
    stages=st.lists(TAU, min_size=2, max_size=8),
    hop=EXTRA,
    feedback=EXTRA,
)
@settings(max_examples=80, deadline=None)
def test_the_bound_is_exact_for_product_form(
    sizes: list[float], stages: list[float], hop: float, feedback: float
) -> None:
    rows = [[a * b for b in stages] for a in sizes]
    assert recursion(rows, hop, feedback) == pytest.approx(uneven_cycle_bound(rows, hop, feedback), rel=1e-6)


def test_too_deep_hurts_and_de_herding_gains_less_than_p() -> None:
    def tau(b: float) -> float:
        return 1.0 + 384 * (1 - (1 - 8 / 384) ** b) / 12

    rates = {m: throughput(64, [tau(64 / m)] * 8, m, 0.1, 0.1) for m in (1, 4, 8, 9, 16, 32, 64)}
    best = max(rates, key=lambda m: rates[m])
    p_eff = effective_stages([tau(8)] * 8, 0.1, 0.1)
    assert abs(best - p_eff) < 1
    assert rates[64] < rates[32] < rates[16] < rates[9]
    assert 1.0 < deherding_gain(tau(8), tau(1)) < 8
    assert rates[8] / rates[1] == pytest.approx(deherding_gain(tau(64), tau(8)), rel=0.05)


def test_the_pipeline_serves_in_order_and_never_two_at_once() -> None:
    pipeline = Pipeline(3)
    first = pipeline.push(0.0, [5.0, 1.0, 1.0], [0.5, 0.5])
    second = pipeline.push(1.0, [1.0, 1.0, 9.0], [0.5, 0.5])
    assert [p.start for p in first] == [0.0, 5.5, 7.0]
    assert [(p.arrival, p.start) for p in second] == [(1.0, 5.0), (6.5, 6.5), (8.0, 8.0)]
    assert all(b.start >= a.end for a, b in zip(first, second, strict=True))
