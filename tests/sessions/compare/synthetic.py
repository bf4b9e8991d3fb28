"""Synthetic runs whose truth is known."""

from __future__ import annotations

import random
from collections.abc import Callable

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

NONE = Percentiles(p50=None, p90=None, p99=None)


def point(concurrency: int, samples: dict[str, list[float]]) -> BenchPoint:
    rates = samples["output_tokens_per_s"]
    return BenchPoint(
        concurrency=concurrency,
        output_tokens_per_s=sorted(rates)[len(rates) // 2],
        tokens_per_s_per_stream=rates[0] / concurrency,
        scaling_efficiency=None,
        ttft_ms=NONE,
        itl_ms=NONE,
        tpot_ms=NONE,
        e2e_ms=NONE,
        herd_index=None,
        waves=None,
        occupancy=[],
        queue_depth=0.0,
        power_w=None,
        energy_j_per_token=None,
        requests=RequestCounts(finished=1, cancelled=0, refused=0),
        duration_s=1.0,
        repetitions=rates,
        samples=samples,
    )


def result(
    points: list[BenchPoint], label: str = "", key: str = "work", knobs: Knobs | None = None, gpus: int = 0
) -> BenchResult:
    return BenchResult(
        run="r",
        label=label,
        started_utc="2026-01-01T00:00:00+00:00",
        points=points,
        knobs=knobs or Knobs(),
        engine=EngineSummary(
            model="m", architecture="a", load_format="auto", dtype="f", pp=4, ep=1, device="cpu", layers=[],
            kv_blocks=1, block_size=16,
        ),
        workload=WorkloadSummary(
            key=key, arrivals="closed", prompt_tokens="1", output_tokens="1", requests_per_point=1,
            concurrencies=[1], seed=0,
        ),
        machine=MachineSummary(host="h", cpu="c", cores=1, memory_bytes=1, gpus=["G"] * gpus),
        versions={"herdscope": "1"},
        emulated=False,
    )  # fmt: skip


def noisy(
    rng: random.Random,
    repetitions: int,
    concurrencies: tuple[int, ...] = (1, 8),
    speed: float = 1.0,
    noise: float = 0.03,
    drift: Callable[[int], float] = lambda repetition: 1.0,
    **fields,
) -> BenchResult:
    """A run whose throughput and latencies have log-normal noise; `speed` multiplies throughput and divides latency."""
    points = []
    for concurrency in concurrencies:
        factors = [speed * drift(r) * rng.lognormvariate(0, noise) for r in range(repetitions)]
        samples = {"output_tokens_per_s": [100 * concurrency * f for f in factors]}
        for name, base in (("ttft_ms_p50", 80), ("itl_ms_p50", 10), ("itl_ms_p99", 14), ("e2e_ms_p50", 700)):
            samples[name] = [base / f * rng.lognormvariate(0, noise) for f in factors]
        points.append(point(concurrency, samples))
    return result(points, **fields)
