"""The benchmark against a target whose every latency is known."""

from __future__ import annotations

import threading

import msgspec
import pytest

from sessions.bench.runner import Progress, Stopped, run_bench
from sessions.bench.target import TargetLost
from sessions.load.lengths import Lengths
from sessions.load.workload import LoadPoint, Workload
from sessions.results import BenchResult

from .virtual_target import VirtualTarget

TEN_TOKENS = Workload(prompt_tokens=Lengths(3, 3), output_tokens=Lengths(10, 10))


def points(*concurrencies: int) -> list[LoadPoint]:
    return [LoadPoint(concurrency=c) for c in concurrencies]


def test_every_figure_of_a_known_engine():
    result = run_bench(VirtualTarget(cycle_ns=10_000_000, watts=100.0), TEN_TOKENS, points(1, 8))
    one, eight = result.points
    assert one.output_tokens_per_s == pytest.approx(100)
    assert eight.output_tokens_per_s == pytest.approx(800)
    assert eight.tokens_per_s_per_stream == pytest.approx(100)
    assert (one.scaling_efficiency, eight.scaling_efficiency) == (pytest.approx(1), pytest.approx(1))
    for point in (one, eight):
        assert point.itl_ms.p50 == point.itl_ms.p99 == point.tpot_ms.p90 == pytest.approx(10)
        assert point.e2e_ms.p50 == pytest.approx(point.ttft_ms.p50 + 90)
        assert point.occupancy == pytest.approx([0.25] * 4, rel=0.01)
        assert point.queue_depth == 3
        assert point.power_w == [100.0, 200.0]
        assert point.energy_j_per_token == pytest.approx(300 / point.output_tokens_per_s, rel=1e-6)
        assert point.herd_index == 1 and point.waves == 1
        assert point.why == {}
    assert eight.requests.finished == 8 + 4 * 8
    assert eight.duration_s == pytest.approx(0.4)


def test_an_even_engine_shows_its_waves_and_no_gpu_is_told_why():
    point = run_bench(VirtualTarget(herd=False), TEN_TOKENS, points(4)).points[0]
    assert point.waves == pytest.approx(4) and point.herd_index == 0
    assert point.power_w is None and "no GPU" in point.why["power_w"]


def test_the_same_requests_give_the_same_digest_and_another_seed_another():
    once, again = (run_bench(VirtualTarget(cycle_ns=c), TEN_TOKENS, points(3)).points[0] for c in (10**7, 3 * 10**7))
    assert once.outputs_digest == again.outputs_digest != ""
    longer = msgspec.structs.replace(TEN_TOKENS, output_tokens=Lengths(11, 11))
    assert run_bench(VirtualTarget(), longer, points(3)).points[0].outputs_digest != once.outputs_digest


def test_repetitions_are_kept_one_by_one():
    point = run_bench(VirtualTarget(), TEN_TOKENS, points(2), repeat=3).points[0]
    assert point.repetitions == pytest.approx([200] * 3)
    assert point.samples["itl_ms_p50"] == pytest.approx([10] * 3)
    assert "energy_j_per_token" not in point.samples


def test_the_result_survives_json():
    result = run_bench(VirtualTarget(), TEN_TOKENS, points(1, 2))
    assert msgspec.json.decode(msgspec.json.encode(result), type=BenchResult) == result
    keys = msgspec.to_builtins(result)
    assert {"points", "knobs", "engine", "workload", "machine", "versions", "emulated"} <= keys.keys()
    assert keys["points"][0].keys() >= {
        "concurrency", "output_tokens_per_s", "ttft_ms", "itl_ms", "tpot_ms", "e2e_ms", "herd_index", "waves",
        "occupancy", "queue_depth", "power_w", "requests",
    }  # fmt: skip
    assert keys["points"][0]["ttft_ms"].keys() >= {"p50", "p90", "p99"}


def test_open_arrivals_measure_from_the_due_instant():
    workload = msgspec.structs.replace(TEN_TOKENS, requests=200, warmup=10)
    point = run_bench(VirtualTarget(), workload, [LoadPoint(rate=100.0)]).points[0]
    assert point.rate_per_s == 100.0
    assert point.output_tokens_per_s == pytest.approx(1000, rel=0.2)
    assert 0 < point.ttft_ms.p50 <= 20
    assert point.concurrency > 10
    assert point.requests.finished == 210


def test_a_target_that_refuses_all_is_reported_not_looped_on():
    target = VirtualTarget()
    target.refuse = "no room"
    point = run_bench(target, TEN_TOKENS, points(2)).points[0]
    assert point.requests.refused == 10 and point.requests.finished == 0
    assert point.output_tokens_per_s == 0 and point.ttft_ms.p50 is None
    assert point.why["requests"] == "refused: no room (10x)"


def test_a_stopped_run_cancels_its_requests_and_says_so():
    target, stop, seen = VirtualTarget(), threading.Event(), []

    def report(progress: Progress) -> None:
        seen.append(progress.phase)
        if progress.phase == "measure":
            stop.set()

    with pytest.raises(Stopped):
        run_bench(target, TEN_TOKENS, points(4), report=report, stop=stop)
    assert not target.live and seen[-1] == "failed"


def test_an_engine_that_goes_silent_is_named():
    target = VirtualTarget(cycle_ns=10**15)
    with pytest.raises(TargetLost, match="no token came for 120 s with 4 requests live"):
        run_bench(target, TEN_TOKENS, points(4))


def test_progress_goes_from_0_to_1_and_hands_over_each_point():
    seen: list[Progress] = []
    result = run_bench(VirtualTarget(), TEN_TOKENS, points(1, 2), repeat=2, report=seen.append)
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions) and (fractions[0], fractions[-1]) == (0.0, 1.0)
    handed = [progress.point for progress in seen if progress.point]
    assert [p.concurrency for p in handed] == [p.concurrency for p in result.points] == [1, 2]
