from __future__ import annotations

import threading
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.emulated.clock import VirtualClock, WallClock
from engine.emulated.cluster import cluster_of
from engine.emulated.executor import SECOND_NS, EmulatedExecutor
from engine.emulated.predict import predict
from engine.emulated.roofline import decode_work
from engine.emulated.theory import bubble, cycle_time, throughput
from engine.plan import AdmitRow, DecodeRow, MicroBatchPlan, PrefillChunk
from sessions.knobs import ADMISSIONS, Admission, KnobError, Knobs
from tests.engine.emulated.closed_loop import closed_loop

EAGER_HERD = Knobs(async_depth=1, admission="greedy", cuda_graphs=False)


def config(knobs: Knobs = EAGER_HERD, **changes: object) -> EngineConfig:
    base = EngineConfig(model="kimi-k2.6", emulate="8x-rtx-pro-6000", pp=8, knobs=knobs)
    return msgspec.structs.replace(base, **changes)


def admit(row: int, tokens: list[int], seed: int = 0) -> AdmitRow:
    return AdmitRow(row, tokens, 0.0, 1.0, seed)


def test_the_story_follows_from_its_two_single_request_rates() -> None:
    """One herd of 8 eager requests, and 32 in two waves of 16 with graphs, on the profile fitted at C = 1."""
    herd = closed_loop(EAGER_HERD, 8)
    assert herd.tokens_per_s == pytest.approx(95.6, rel=0.10)
    waves = closed_loop(Knobs(async_depth=8, admission="greedy", max_micro_batch=16, cuda_graphs=True), 32)
    assert waves.tokens_per_s == pytest.approx(248.0, rel=0.15)
    watts = [gpu.power_watts for gpu in herd.gpus]
    assert len(watts) == 8 and all(w == pytest.approx(85.0, rel=0.15) for w in watts)
    assert all(gpu.emulated for gpu in herd.gpus)


@given(
    concurrency=st.integers(1, 24),
    depth=st.integers(1, 16),
    ranks=st.integers(1, 8),
    graphs=st.booleans(),
    admission=st.sampled_from(["greedy", "capped"]),
    cap=st.sampled_from([4, 256]),
)
@settings(max_examples=30, deadline=None)
def test_the_scheduler_on_the_cluster_runs_at_the_rate_of_the_theory(
    concurrency: int, depth: int, ranks: int, graphs: bool, admission: Admission, cap: int
) -> None:
    knobs = Knobs(async_depth=depth, admission=admission, max_micro_batch=cap, cuda_graphs=graphs)
    concurrency = min(concurrency, depth * cap)
    cluster = cluster_of(config(knobs, pp=ranks))
    predicted = predict(cluster.roofline("pp"), knobs, concurrency, 150).tokens_per_s
    measured = closed_loop(knobs, concurrency, output=256, ranks=ranks).tokens_per_s
    assert measured == pytest.approx(predicted, rel=0.03)


@given(each=st.integers(1, 6), depth=st.integers(1, 14), ranks=st.integers(2, 8), graphs=st.booleans())
@settings(max_examples=25, deadline=None)
def test_cycle_and_bubble_of_the_cluster_are_those_of_the_closed_forms(
    each: int, depth: int, ranks: int, graphs: bool
) -> None:
    """`depth` equal micro-batches of `each` requests, spread by the policy that splits evenly."""
    knobs = Knobs(async_depth=depth, admission="capped", cuda_graphs=graphs)
    run = closed_loop(knobs, each * depth, output=128, ranks=ranks)
    roofline = cluster_of(config(knobs, pp=ranks)).roofline("pp")
    taus = [t.stage for t in roofline.stage_times(decode_work(each, 80), graphs)]
    hop, host = roofline.hop_s(0, 1, each), roofline.hardware.host_us * 1e-6
    assert run.tokens_per_s == pytest.approx(throughput(each * depth, taus, depth, hop, host), rel=0.02)
    slowest = taus.index(max(taus))
    spans = [s for f in run.frames if f.stage == slowest for s in f.spans if s.decode == each and not s.prefill_tokens]
    middle = spans[len(spans) // 3 : -len(spans) // 10]
    busy = sum(s.end - s.start for s in middle) / (middle[-1].end - middle[0].start)
    assert 1.0 - busy == pytest.approx(bubble(taus, depth, hop, host), abs=0.03)


@pytest.mark.parametrize("admission", ADMISSIONS)
@pytest.mark.parametrize("run_ahead", [0, 1])
def test_every_policy_gives_every_request_the_same_tokens(admission: Admission, run_ahead: int) -> None:
    one = closed_loop(EAGER_HERD, 12, output=20)
    other = closed_loop(
        Knobs(async_depth=5, admission=admission, max_micro_batch=4, cuda_graphs=True),
        12,
        output=20,
        run_ahead=run_ahead,
    )
    assert other.tokens == one.tokens
    assert len({tuple(t) for t in one.tokens.values()}) == 12
    assert all(len(t) == 20 for t in one.tokens.values())


def test_running_ahead_hides_the_host_alone() -> None:
    waited, ahead = (closed_loop(EAGER_HERD, 1, output=128, run_ahead=n) for n in (0, 1))
    host_s = cluster_of(config()).hardware.host_us * 1e-6
    assert 1 / waited.tokens_per_s - 1 / ahead.tokens_per_s == pytest.approx(host_s, rel=0.05)


def test_one_micro_batch_takes_one_lap_and_spans_say_where_it_was() -> None:
    executor = EmulatedExecutor(config(), VirtualClock(1000))
    prompt = MicroBatchPlan(0, 0, [admit(0, [5, 6])], [], [], [PrefillChunk(0, 0, 2, True)])
    executor.submit(prompt)
    (first,) = executor.collect(10.0)
    executor.submit(MicroBatchPlan(1, 0, [], [], [DecodeRow(0, 2)], []))
    (second,) = executor.collect(10.0)
    roofline = cluster_of(config()).roofline("pp")
    taus = [t.stage for t in roofline.stage_times(decode_work(1, 3), False)]
    hop = roofline.hop_s(0, 1, 1)
    lap = cycle_time(taus, 1, hop, roofline.hardware.host_us * 1e-6)
    assert (second.t_ns - first.t_ns) / SECOND_NS == pytest.approx(lap, rel=1e-4)
    frames = executor.spans()
    assert [f.stage for f in frames] == list(range(8))
    for frame in frames:
        assert [s.step for s in frame.spans] == [0, 1]
        for span in frame.spans:
            assert span.wait <= span.ready <= span.start < span.end <= span.sent <= 0
            assert not span.graph and span.launch_ns > 0
    assert executor.spans() == []


def test_energy_is_power_times_time_whatever_the_frames() -> None:
    totals = []
    for reads in (1, 7):
        executor = EmulatedExecutor(config(), VirtualClock(0))
        joules = 0.0
        executor.submit(MicroBatchPlan(0, 0, [admit(0, [5])], [], [], [PrefillChunk(0, 0, 1, True)]))
        last = 0
        for i in range(1, reads + 1):
            executor.collect(0.0)
            executor.clock.pass_until(i * SECOND_NS // reads)
            frames = executor.gpu_frames()
            assert frames[0].power_watts is not None
            joules += frames[0].power_watts * (frames[0].t_ns - last) / SECOND_NS
            last = frames[0].t_ns
            assert frames[0].energy_joules_total == pytest.approx(joules)
        totals.append(joules)
    assert totals[0] == pytest.approx(totals[1])
    assert totals[0] > cluster_of(config()).hardware.idle_watts


def test_recomputing_a_request_repeats_its_tokens() -> None:
    executor = EmulatedExecutor(config(), VirtualClock(0))
    executor.submit(MicroBatchPlan(0, 0, [admit(3, [9, 8, 7], seed=4)], [], [], [PrefillChunk(3, 0, 3, True)]))
    (a,) = executor.collect(10.0)
    executor.submit(MicroBatchPlan(1, 0, [], [], [DecodeRow(3, 3)], []))
    (b,) = executor.collect(10.0)
    again = [9, 8, 7, *a.tokens]
    executor.submit(MicroBatchPlan(2, 0, [admit(5, again, seed=4)], [], [], [PrefillChunk(5, 0, 4, True)]))
    (c,) = executor.collect(10.0)
    assert c.tokens == b.tokens


def test_the_knobs_apply_and_a_switch_takes_the_time_of_its_bytes() -> None:
    executor = EmulatedExecutor(config(), VirtualClock(0))
    assert executor.apply(msgspec.structs.replace(EAGER_HERD, cuda_graphs=True)).cuda_graphs
    before = executor.clock.now_ns()
    switched = executor.apply(Knobs(cuda_graphs=True, parallelism="ep"))
    assert switched.parallelism == "ep"
    took = (executor.clock.now_ns() - before) / SECOND_NS
    assert took == pytest.approx(594e9 * (7 / 8) / 8 / 50e9, rel=0.01)
    assert executor.capabilities.stages == 1 and len(executor.capabilities.ranks) == 8
    executor.submit(MicroBatchPlan(0, 0, [admit(0, [5])], [], [], [PrefillChunk(0, 0, 1, True)]))
    executor.collect(10.0)
    frames = executor.spans()
    assert [f.rank for f in frames] == list(range(8)) and {f.stage for f in frames} == {0}
    assert all(f.spans[0].end < f.spans[0].sent for f in frames)


def test_one_gpu_cannot_switch_and_says_why() -> None:
    executor = EmulatedExecutor(config(model="qwen3-30b-a3b", emulate="h200", pp=1), VirtualClock(0))
    assert "parallelism" in executor.capabilities.unavailable
    with pytest.raises(KnobError, match="one GPU"):
        executor.apply(Knobs(parallelism="ep"))
    with pytest.raises(KnobError, match="profile"):
        executor.profile("folder")


def test_what_does_not_fit_says_so_and_what_fits_leaves_a_cache() -> None:
    fits = EmulatedExecutor(config(), VirtualClock(0)).capabilities
    assert fits.emulated and fits.hardware == "8x RTX PRO 6000 Blackwell" and fits.kv_blocks > 10_000
    tight = EmulatedExecutor(config(pp=4), VirtualClock(0)).capabilities
    assert "lacks" in tight.hardware


def test_wall_time_waits_and_wakes() -> None:
    knobs = Knobs(cuda_graphs=True)
    executor = EmulatedExecutor(config(knobs, model="qwen3-30b-a3b", emulate="2x-h200", pp=2), WallClock())
    start = time.monotonic()
    threading.Timer(0.05, executor.wake).start()
    assert executor.collect(30.0) == []
    assert time.monotonic() - start < 10.0
    executor.submit(MicroBatchPlan(0, 0, [admit(0, [5])], [], [], [PrefillChunk(0, 0, 1, True)]))
    (result,) = executor.collect(30.0)
    assert result.t_ns <= time.monotonic_ns()


def test_without_telemetry_nothing_is_kept() -> None:
    executor = EmulatedExecutor(config(telemetry=False), VirtualClock(0))
    executor.submit(MicroBatchPlan(0, 0, [admit(0, [5])], [], [], [PrefillChunk(0, 0, 1, True)]))
    executor.collect(10.0)
    assert executor.spans() == []
