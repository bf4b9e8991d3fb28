"""The metrics that a comparison tests."""

from __future__ import annotations

from typing import NamedTuple

from sessions.results import BenchPoint


class Metric(NamedTuple):
    """One metric: its key among a point's samples, its name, unit, and whether more is better."""

    key: str
    name: str
    unit: str
    more_is_better: bool


METRICS = (
    Metric("output_tokens_per_s", "throughput", "tok/s", True),
    Metric("ttft_ms_p50", "TTFT p50", "ms", False),
    Metric("itl_ms_p50", "ITL p50", "ms", False),
    Metric("itl_ms_p99", "ITL p99", "ms", False),
    Metric("e2e_ms_p50", "e2e p50", "ms", False),
    Metric("energy_j_per_token", "energy", "J/token", False),
)
BY_KEY = {metric.key: metric for metric in METRICS}


def samples_of(point: BenchPoint, metric: Metric) -> list[float]:
    """One value a repetition; where a result keeps no repetitions, its one figure; [] where it has none."""
    if metric.key in point.samples:
        return point.samples[metric.key]
    if metric.key == "output_tokens_per_s":
        return point.repetitions or [point.output_tokens_per_s]
    if metric.key == "energy_j_per_token":
        return [] if point.energy_j_per_token is None else [point.energy_j_per_token]
    name, _, quantile = metric.key.rpartition("_")
    value = getattr(getattr(point, name), quantile)
    return [] if value is None else [value]
