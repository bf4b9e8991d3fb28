from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.knobs import Knobs
from sessions.messages import (
    EngineState,
    Fault,
    Goodbye,
    Hello,
    Jumped,
    KnobReply,
    KnobState,
    QueueFrame,
    RankInfo,
    SlotSize,
    Span,
    StageFrame,
)
from tests.tui.console.feed import MS, SOURCE, balanced, herd
from tui.console.store.lanes import Lane
from tui.console.store.rate import Rate
from tui.console.store.series import Series
from tui.console.store.store import Store

S = 1_000_000_000


def fed(feed: object, seconds: float = 10.0) -> Store:
    store = Store()
    store.apply(feed.opening())  # type: ignore[attr-defined]
    for now, messages in feed.frames(seconds):  # type: ignore[attr-defined]
        store.apply(messages)
        store.advance(now)
    return store


@given(st.lists(st.tuples(st.integers(0, 10_000), st.floats(-1e6, 1e6))), st.integers(0, 10_000), st.integers(1, 500))
def test_columns_hold_every_sample_of_their_time_once(
    samples: list[tuple[int, float]], start: int, column: int
) -> None:
    series = Series(1000)
    for t_ns, value in sorted(samples):
        series.append(t_ns, value)
    columns = series.columns(start, column, 8)
    for i, mean in enumerate(columns):
        begin = start + i * column
        expected = [value for t_ns, value in samples if begin <= t_ns < begin + column]
        assert (mean is None) == (not expected)
        if mean is not None:
            assert mean == pytest.approx(sum(expected) / len(expected), rel=1e-9, abs=1e-6)


def test_a_series_never_runs_back_and_stays_bounded() -> None:
    series = Series(3)
    for t_ns in (1, 2, 5, 4, 6):
        series.append(t_ns, t_ns)
    assert series.since(0) == [(2, 2), (5, 5), (6, 6)]


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 50)), min_size=2, max_size=60))
def test_a_rate_is_the_growth_over_its_window(steps: list[tuple[int, int]]) -> None:
    rate = Rate(1000, S)
    t_ns, total = 0, 0
    readings = [(0, 0)]
    rate.observe(0, 0)
    for wait_ms, grown in steps:
        t_ns, total = t_ns + wait_ms * MS, total + grown
        readings.append((t_ns, total))
        rate.observe(t_ns, total)
    base = next((r for r in reversed(readings) if r[0] <= t_ns - S), readings[0])
    assert rate.series.last == pytest.approx((total - base[1]) * S / (t_ns - base[0]))


def test_a_counter_that_falls_has_been_restarted() -> None:
    rate = Rate(100)
    for i in range(5):
        rate.observe(i * S // 10, i * 10)
    rate.observe(S, 0)
    rate.observe(S + S // 10, 10)
    assert rate.series.last == pytest.approx(100)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 60)), min_size=1, max_size=30),
    st.integers(0, 800),
    st.integers(1, 800),
)
def test_occupancy_equals_counting_nanoseconds(gaps: list[tuple[int, int]], start: int, length: int) -> None:
    spans, t_ns = [], 0
    for gap, size in gaps:
        t_ns += gap
        spans.append((t_ns, t_ns + size))
        t_ns += size
    lane = Lane(0, 0)
    frame = [Span(0, i, 1, 0, b, b, b, e, e) for i, (b, e) in enumerate(spans)]
    lane.extend(StageFrame(source="s", t_ns=0, stage=0, rank=0, window_ns=1, spans=frame), 0)
    begin = max(start, spans[0][0])
    end = start + length
    occupied = lane.occupied(start, end)
    if end <= begin:
        assert occupied is None
    else:
        held = sum(any(b <= t < e for b, e in spans) for t in range(begin, end))
        assert occupied == pytest.approx(held / (end - begin))


def test_a_herd_of_sixteen_in_one_of_eight_slots() -> None:
    store = fed(herd())
    since = store.now_ns - 5 * S
    assert store.herd.mean_of_last(5 * S) == pytest.approx(1.0)
    assert store.waves.mean_of_last(5 * S) == pytest.approx(1.0)
    bubbles = [1 - (lane.occupied(since, lane.last_end_ns or 0) or 0) for lane in store.ranked_lanes()]
    assert all(0.8 < bubble < 0.92 for bubble in bubbles)


def test_an_even_spread_over_eight_slots() -> None:
    store = fed(balanced())
    assert store.herd.mean_of_last(5 * S) == pytest.approx(0.0)
    assert store.waves.mean_of_last(5 * S) == pytest.approx(8.0)
    assert (store.output_rate.series.last or 0) > 2 * (fed(herd()).output_rate.series.last or 0)


def test_sums_over_scheduling_instants_are_preferred_to_the_slots_at_the_frame() -> None:
    store = Store()
    for i in range(3):
        store.apply([
            QueueFrame(source=SOURCE, t_ns=i * 100 * MS, waiting=0, running=8, slots=[SlotSize(8, 0, True)] * 2,
                       in_flight=1, kv_blocks_used=0, kv_blocks=1, output_tokens_total=0, prompt_tokens_total=0,
                       herd_index_sum=i * 2.5, waves_sum=i * 20.0, herd_samples=i * 10 + 5)
        ])  # fmt: skip
    assert store.herd.last == pytest.approx(0.25)
    assert store.waves.last == pytest.approx(2.0)


def test_knob_changes_become_events_and_refusals_say_why() -> None:
    store = Store()
    state = {"source": SOURCE, "unavailable": {}}
    store.apply([
        KnobState(**state, t_ns=1, knobs=Knobs()),
        KnobState(**state, t_ns=2, knobs=Knobs(async_depth=4, admission="rebalance")),
        KnobReply(source=SOURCE, t_ns=3, id="1", to="c", ok=False, reason="no CUDA device", knob="cuda_graphs",
                  applied=False),
    ])  # fmt: skip
    assert [event.text for event in store.events] == [
        "async_depth 1 → 4",
        "admission greedy → rebalance",
        "cuda_graphs: no CUDA device",
    ]
    assert [event.category for event in store.events] == ["knob", "knob", "refused"]


def test_a_fault_stays_until_the_engine_is_ready_again() -> None:
    store = Store()
    store.apply([Fault(source=SOURCE, t_ns=1, what="worker died", cause="killed", rank=1, signal="SIGKILL")])
    assert store.fault is not None
    store.apply([EngineState(source=SOURCE, t_ns=2, phase="loading")])
    assert store.fault is not None
    store.apply([EngineState(source=SOURCE, t_ns=3, phase="ready")])
    assert store.fault is None
    assert "rank 1: worker died: killed" in [event.text for event in store.events]


def test_lanes_of_ranks_that_are_gone_are_dropped() -> None:
    store = fed(herd(stages=4), 1.0)
    assert sorted(store.lanes) == [0, 1, 2, 3]
    ranks = [RankInfo(r, r, 0, 1, "cpu", "host", 1) for r in range(2)]
    store.apply([EngineState(source=SOURCE, t_ns=store.now_ns, phase="ready", ranks=ranks, stages=2)])
    assert sorted(store.lanes) == [0, 1]


@given(st.integers(-(10**15), 10**15))
def test_spans_of_another_host_land_on_the_sessions_clock(shift: int) -> None:
    store = Store()
    wall = 1_790_000_000 * S
    store.apply(
        [
            Hello(source="a-1/engine/1", t_ns=10**16, role="engine", host="a", pid=1, wall_ns=wall),
            Hello(source="b-2/engine/1", t_ns=10**16 + shift, role="engine", host="b", pid=1, wall_ns=wall),
        ]
    )
    for rank, (source, own) in enumerate((("a-1/engine/1", 0), ("b-2/engine/1", shift))):
        t_ns = 10**16 + own + 5 * MS
        span = Span(0, 1, 1, 0, -4 * MS, -4 * MS, -4 * MS, -MS, -MS)
        store.apply([StageFrame(source=source, t_ns=t_ns, stage=rank, rank=rank, window_ns=1, spans=[span])])
    assert store.lanes[0].last_end_ns == store.lanes[1].last_end_ns == 10**16 + 4 * MS


def test_every_history_is_bounded() -> None:
    store = fed(balanced(stages=2, gpus=1, base_ms=0.2, per_request_ms=0.01), 10.0)
    assert len(store.lanes[0].between(0, store.now_ns)) <= 4096
    assert len(store.output_rate.series) <= 6000
    assert len(store.events) <= 500


def test_reset_forgets_everything() -> None:
    store = fed(herd(), 1.0)
    store.reset()
    fresh = Store()
    assert store.engine is None and store.queue is None and not store.lanes and not store.gpus
    assert (store.now_ns, store.version, len(store.events)) == (fresh.now_ns, fresh.version, len(fresh.events))


def test_readings_of_who_said_goodbye_are_gone() -> None:
    store = fed(herd(), 1.0)
    assert store.gpus and store.hosts
    store.apply([Goodbye(source=SOURCE, t_ns=1, peer="host-abc123/console/9", reason="left", expected=True)])
    assert store.gpus and store.hosts
    store.apply([Goodbye(source=SOURCE, t_ns=1, peer="host-abc123/console/2", reason="left", expected=True)])
    assert not store.gpus and not store.hosts and store.queue is not None


def test_versions_count_within_an_epoch() -> None:
    store, other = fed(herd(), 1.0), fed(herd(), 1.0)
    epochs = [store.epoch, other.epoch]
    store.exchange(other)
    assert [store.epoch, other.epoch] == epochs[::-1]
    store.apply([Jumped(source=SOURCE, t_ns=1, to_ns=1)])
    assert store.epoch not in epochs
