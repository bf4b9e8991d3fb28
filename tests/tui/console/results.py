"""Two benchmark results with known figures."""

from __future__ import annotations

from sessions.knobs import Knobs
from sessions.results import (
    BenchPoint,
    BenchResult,
    EngineSummary,
    MachineSummary,
    Percentiles,
    RequestCounts,
    WorkloadSummary,
)


def _point(concurrency: int, rate: float, spread: float) -> BenchPoint:
    latency = Percentiles(1000 * concurrency / rate, 1100 * concurrency / rate, 1300 * concurrency / rate)
    rates = [rate * (1 + spread * (i - 2.5)) for i in range(6)]
    return BenchPoint(
        concurrency=concurrency,
        output_tokens_per_s=rate,
        tokens_per_s_per_stream=rate / concurrency,
        scaling_efficiency=None,
        ttft_ms=latency,
        itl_ms=latency,
        tpot_ms=latency,
        e2e_ms=latency,
        herd_index=1.0 if rate < 100 else 0.0,
        waves=1.0 if rate < 100 else 4.0,
        occupancy=[0.2, 0.2, 0.2, 0.25],
        queue_depth=0.0,
        power_w=None,
        energy_j_per_token=None,
        requests=RequestCounts(64, 0, 0),
        duration_s=10.0,
        repetitions=rates,
        samples={"output_tokens_per_s": rates},
    )


def _run(run: str, label: str, knobs: Knobs, points: list[BenchPoint]) -> BenchResult:
    return BenchResult(
        run=run,
        started_utc="2026-11-30T21:00:00Z",
        points=points,
        knobs=knobs,
        engine=EngineSummary(
            model="tiny", architecture="qwen3_moe", load_format="auto", dtype="float32", pp=4, ep=1, device="cpu",
            layers=[[0, 2], [2, 4], [4, 6], [6, 8]], kv_blocks=1024, block_size=16,
        ),
        workload=WorkloadSummary(
            key="k", arrivals="closed", prompt_tokens="32", output_tokens="64", requests_per_point=64,
            concurrencies=[4, 16], seed=0,
        ),
        machine=MachineSummary(host="host", cpu="cpu", cores=2, memory_bytes=1 << 34, gpus=[]),
        versions={"herdscope": "0.1.0"},
        emulated=False,
        label=label,
    )  # fmt: skip


def run_a() -> BenchResult:
    """Greedy: one herd."""
    return _run("r1", "greedy", Knobs(async_depth=4), [_point(4, 60.0, 0.01), _point(16, 95.6, 0.01)])


def run_b() -> BenchResult:
    """Rebalanced: 2.5 times as fast at C = 16, the same at C = 4."""
    knobs = Knobs(async_depth=4, admission="rebalance")
    return _run("r2", "rebalance", knobs, [_point(4, 60.1, 0.01), _point(16, 240.0, 0.01)])
