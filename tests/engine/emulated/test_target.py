from __future__ import annotations

import msgspec
import pytest

from engine.config import EngineConfig
from engine.emulated.target import VirtualTarget
from sessions.bench.runner import run_bench
from sessions.knobs import ADMISSIONS, Admission, Knobs
from sessions.load.lengths import Lengths
from sessions.load.workload import LoadPoint, Workload
from sessions.messages import Finished, RequestSpec, TokenFrame
from sessions.results import BenchPoint

HERD = Knobs(async_depth=1, admission="greedy", cuda_graphs=False)


def bench(knobs: Knobs, concurrency: int, workload: Workload | None = None, **changes: object) -> BenchPoint:
    config = EngineConfig(model="kimi-k2.6", emulate="8x-rtx-pro-6000", pp=8, knobs=knobs)
    target = VirtualTarget(msgspec.structs.replace(config, **changes))
    result = run_bench(target, workload or Workload(), [LoadPoint(concurrency=concurrency)])
    assert result.emulated
    return result.points[0]


def test_the_story_by_the_benchmark() -> None:
    herd = bench(HERD, 8)
    assert herd.output_tokens_per_s == pytest.approx(95.6, rel=0.10)
    assert herd.power_w is not None and len(herd.power_w) == 8
    assert all(w == pytest.approx(85.0, rel=0.15) for w in herd.power_w if w is not None)
    assert herd.waves == pytest.approx(1.0)
    assert len(herd.occupancy) == 8 and max(herd.occupancy) < 0.2
    waves = bench(Knobs(async_depth=8, admission="greedy", max_micro_batch=16, cuda_graphs=True), 32)
    assert waves.output_tokens_per_s == pytest.approx(248.0, rel=0.15)
    assert waves.waves == pytest.approx(2.0, rel=0.05)
    alone = bench(HERD, 1, Workload(output_tokens=Lengths(256, 256)))
    assert 1000 / (alone.itl_ms.p50 or 0) == pytest.approx(24.7, rel=0.01)


@pytest.mark.parametrize("admission", ADMISSIONS)
@pytest.mark.parametrize(("pp", "depth", "concurrency"), [(1, 1, 3), (2, 5, 7), (8, 16, 1), (8, 8, 20)])
def test_every_request_ends_whatever_the_knobs(admission: Admission, pp: int, depth: int, concurrency: int) -> None:
    short = Workload(output_tokens=Lengths(3, 9), requests=2 * concurrency)
    point = bench(Knobs(async_depth=depth, admission=admission, cuda_graphs=True), concurrency, short, pp=pp)
    assert point.requests.finished == 3 * concurrency
    assert point.requests.failed == point.requests.refused == 0
    assert len(point.occupancy) == pp


def test_expert_parallel_keeps_every_gpu_at_work() -> None:
    point = bench(Knobs(async_depth=1, cuda_graphs=True, parallelism="ep"), 8, pp=1, ep=8)
    assert point.power_w is not None and len(point.power_w) == 8
    assert min(w for w in point.power_w if w is not None) > 150


def test_the_same_benchmark_twice_is_the_same() -> None:
    first, second = bench(HERD, 5), bench(HERD, 5)
    assert first.output_tokens_per_s == second.output_tokens_per_s
    assert first.itl_ms == second.itl_ms


def test_knobs_turn_while_requests_run_and_nothing_is_lost() -> None:
    config = EngineConfig(model="kimi-k2.6", emulate="8x-rtx-pro-6000", pp=8, knobs=HERD)
    target = VirtualTarget(config)
    requests = [RequestSpec(id=f"r{i}", prompt=[1, 2, 3], max_tokens=40, seed=i) for i in range(12)]
    assert target.submit(requests) == ""
    ended: list[Finished] = []
    turns = iter(
        [
            ("cuda_graphs", "on"),
            ("async_depth", 8),
            ("admission", "rebalance"),
            ("parallelism", "ep"),
            ("parallelism", "pp"),
        ]
    )
    for _ in range(400):
        for message in target.advance(target.clock.now_ns() + 200_000_000):
            if isinstance(message, TokenFrame):
                ended += message.finished
        knob = next(turns, None)
        if knob is not None:
            reply = target.turn(*knob)  # type: ignore[arg-type]
            assert reply.ok, reply.reason
            if knob[0] == "parallelism":
                assert reply.preempted == 12 and reply.took_ms > 1000
    assert sorted(e.request for e in ended) == sorted(r.id for r in requests)
    assert {e.reason for e in ended} == {"length"}
    assert target.knobs.knobs.async_depth == 8
    assert target.engine.emulated and target.engine.phase == "ready"


def test_a_cancelled_request_gets_its_end_and_a_wrong_knob_a_reason() -> None:
    target = VirtualTarget(EngineConfig(model="kimi-k2.6", emulate="8x-rtx-pro-6000", pp=8, knobs=HERD))
    target.submit([RequestSpec(id="a", prompt=[1], max_tokens=1000)])
    target.cancel(["a"])
    reply = target.turn("async_depth", 999)
    assert not reply.ok and "64" in reply.reason
    frames = [m for m in target.advance(10**9) if isinstance(m, TokenFrame)]
    assert [e.reason for f in frames for e in f.finished] == ["cancelled"]
