"""From the repetitions of one point to the point of a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from sessions.bench.gpus import over_repetitions
from sessions.bench.percentiles import percentiles, quantile
from sessions.bench.sample import Sample
from sessions.load.workload import LoadPoint
from sessions.results import BenchPoint, RequestCounts

NO_GPU = "no GPU frame came during the measured window"


def combine(point: LoadPoint, samples: Sequence[Sample]) -> BenchPoint:
    """Rates and shares are medians over repetitions; latency percentiles are over all repetitions' requests."""
    first = samples[0]
    concurrency = point.concurrency or max(s.most_live for s in samples)
    rates = [s.output_tokens_per_s for s in samples]
    return BenchPoint(
        load=str(point),
        concurrency=concurrency,
        output_tokens_per_s=median(rates),
        tokens_per_s_per_stream=median(rates) / concurrency if concurrency else 0.0,
        scaling_efficiency=None,
        ttft_ms=percentiles([v for s in samples for v in s.ttft_ms]),
        itl_ms=percentiles([v for s in samples for v in s.itl_ms]),
        tpot_ms=percentiles([v for s in samples for v in s.tpot_ms]),
        e2e_ms=percentiles([v for s in samples for v in s.e2e_ms]),
        herd_index=_median(samples, lambda s: s.herd_index),
        waves=_median(samples, lambda s: s.waves),
        occupancy=[median(shares) for shares in zip(*(s.occupancy for s in samples), strict=False)],
        queue_depth=_median(samples, lambda s: s.queue_depth) or 0.0,
        power_w=_power(samples),
        energy_j_per_token=_median(samples, lambda s: s.energy_j_per_token),
        requests=RequestCounts(
            finished=sum(s.requests.finished for s in samples),
            cancelled=sum(s.requests.cancelled for s in samples),
            refused=sum(s.requests.refused for s in samples),
            failed=sum(s.requests.failed for s in samples),
        ),
        duration_s=sum(s.duration_s for s in samples),
        repetitions=rates,
        preempted=sum(s.preempted for s in samples),
        rate_per_s=point.rate,
        samples=_samples(samples),
        outputs_digest=first.outputs_digest if len({s.outputs_digest for s in samples}) == 1 else "",
        gpus=over_repetitions([s.gpus for s in samples]),
        why=_why(samples),
    )


def with_scaling(points: Sequence[BenchPoint]) -> list[BenchPoint]:
    """Fill in each point's tok/s a stream over that of C=1, where the sweep has C=1."""
    import msgspec

    alone = next((p.output_tokens_per_s for p in points if p.concurrency == 1 and p.rate_per_s is None), None)
    if not alone:
        return list(points)
    return [msgspec.structs.replace(p, scaling_efficiency=p.tokens_per_s_per_stream / alone) for p in points]


def _median(samples: Sequence[Sample], read: Callable[[Sample], float | None]) -> float | None:
    values = [value for s in samples if (value := read(s)) is not None]
    return median(values) if values else None


def _power(samples: Sequence[Sample]) -> list[float | None] | None:
    told = [s.power_w for s in samples if s.power_w is not None]
    if not told:
        return None
    by_gpu = [[watts for watts in gpu if watts is not None] for gpu in zip(*told, strict=False)]
    return [median(watts) if watts else None for watts in by_gpu]


def _samples(samples: Sequence[Sample]) -> dict[str, list[float]]:
    """Every metric that each repetition has, once a repetition."""
    metrics: dict[str, Callable[[Sample], float | None]] = {
        "output_tokens_per_s": lambda s: s.output_tokens_per_s,
        "ttft_ms_p50": lambda s: _at(s.ttft_ms, 0.5),
        "ttft_ms_p99": lambda s: _at(s.ttft_ms, 0.99),
        "itl_ms_p50": lambda s: _at(s.itl_ms, 0.5),
        "itl_ms_p99": lambda s: _at(s.itl_ms, 0.99),
        "tpot_ms_p50": lambda s: _at(s.tpot_ms, 0.5),
        "e2e_ms_p50": lambda s: _at(s.e2e_ms, 0.5),
        "herd_index": lambda s: s.herd_index,
        "waves": lambda s: s.waves,
        "energy_j_per_token": lambda s: s.energy_j_per_token,
    }
    table: dict[str, list[float]] = {}
    for name, read in metrics.items():
        values = [value for s in samples if (value := read(s)) is not None]
        if len(values) == len(samples):
            table[name] = values
    return table


def _at(values: Sequence[float], q: float) -> float | None:
    return quantile(sorted(values), q) if values else None


def _why(samples: Sequence[Sample]) -> dict[str, str]:
    """For each figure that is missing or doubtful, the reason."""
    why: dict[str, str] = {}
    if all(s.power_w is None for s in samples):
        why["power_w"] = why["energy_j_per_token"] = NO_GPU
    if all(s.herd_index is None for s in samples):
        why["herd_index"] = "needs at least 2 decode requests and 2 stages at some instant"
    if not any(s.occupancy for s in samples):
        why["occupancy"] = "no stage span came during the measured window"
    if len({s.outputs_digest for s in samples}) > 1:
        why["outputs_digest"] = "the repetitions did not produce the same tokens"
    unfinished = "; ".join(sorted({f"{reason} ({count}x)" for s in samples for reason, count in s.reasons.items()}))
    if unfinished:
        why["requests"] = unfinished
    return why
