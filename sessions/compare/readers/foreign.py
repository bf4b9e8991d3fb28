"""From another tool's figures to a result of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from sessions.bench.percentiles import percentiles
from sessions.compare.metrics import METRICS
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

NOTHING = Percentiles(p50=None, p90=None, p99=None)
LATENCIES = ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms")
UNTOLD = "the tool does not tell it"


class UnreadableResult(ValueError):
    """A file that is no result known here, or lacks what it should have; the text is one line that names it."""


class Measurement(NamedTuple):
    """One measurement of another tool. `concurrency` is the cap that was asked for (None: none), `rate` the arrivals a
    second (None: all at once); `latencies` by the names of LATENCIES, as far as the tool tells them."""

    concurrency: int | None
    rate: float | None
    output_tokens_per_s: float
    latencies: Mapping[str, Percentiles]
    finished: int
    failed: int
    duration_s: float

    @property
    def load(self) -> str:
        """What the load is called."""
        if self.concurrency is not None:
            return f"C={self.concurrency}"
        return "all at once" if self.rate is None else f"{self.rate:g}/s"


def to_result(
    path: Path,
    tool: str,
    model: str,
    work: str,
    measurements: Sequence[Measurement],
    definitions: Mapping[str, str],
    started_utc: str = "",
) -> BenchResult:
    """A result of ours: measurements of the same load are its repetitions. `work` are words for what was asked."""
    loads: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        loads.setdefault(measurement.load, []).append(measurement)
    return BenchResult(
        run=path.stem,
        started_utc=started_utc,
        points=[_point(load, same) for load, same in loads.items()],
        knobs=Knobs(),
        engine=EngineSummary(
            model=model,
            architecture="",
            load_format="",
            dtype="",
            pp=1,
            ep=1,
            device="",
            layers=[],
            kv_blocks=0,
            block_size=0,
        ),
        workload=WorkloadSummary(
            key=f"{tool}: {work}",
            arrivals="",
            prompt_tokens="",
            output_tokens="",
            requests_per_point=measurements[0].finished + measurements[0].failed,
            concurrencies=[m.concurrency for m in measurements if m.concurrency is not None],
            seed=0,
        ),
        machine=MachineSummary(host="", cpu="", cores=0, memory_bytes=0, gpus=[]),
        versions={},
        emulated=False,
        label=path.stem,
        tool=tool,
        definitions=dict(definitions),
    )


def number(fields: Mapping[str, Any], name: str, path: Path) -> float:
    """A field that must be a number. Raise UnreadableResult naming it."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnreadableResult(f"{path}: {name} must be a number, not {value!r}")
    return float(value)


def optional(fields: Mapping[str, Any], name: str) -> float | None:
    """A field that may be a number."""
    value = fields.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def in_ms(seconds: Sequence[float]) -> Percentiles:
    """Percentiles in ms of values in seconds."""
    return percentiles([value * 1e3 for value in seconds])


def _point(load: str, same: Sequence[Measurement]) -> BenchPoint:
    rates = [m.output_tokens_per_s for m in same]
    latencies = {name: _over(same, name) for name in LATENCIES}
    concurrency = same[0].concurrency or 0
    return BenchPoint(
        load=load,
        concurrency=concurrency,
        output_tokens_per_s=median(rates),
        tokens_per_s_per_stream=median(rates) / concurrency if concurrency else 0.0,
        scaling_efficiency=None,
        ttft_ms=latencies["ttft_ms"],
        itl_ms=latencies["itl_ms"],
        tpot_ms=latencies["tpot_ms"],
        e2e_ms=latencies["e2e_ms"],
        herd_index=None,
        waves=None,
        occupancy=[],
        queue_depth=0.0,
        power_w=None,
        energy_j_per_token=None,
        requests=RequestCounts(
            finished=sum(m.finished for m in same), cancelled=0, refused=0, failed=sum(m.failed for m in same)
        ),
        duration_s=sum(m.duration_s for m in same),
        repetitions=rates,
        rate_per_s=same[0].rate,
        samples=_samples(same),
        why={name: UNTOLD for name, found in latencies.items() if found == NOTHING},
    )


def _over(same: Sequence[Measurement], name: str) -> Percentiles:
    """The median over repetitions of each percentile that all of them tell."""
    found = [m.latencies.get(name, NOTHING) for m in same]
    values = {}
    for field in ("p50", "p90", "p99", "mean"):
        told = [value for each in found if (value := getattr(each, field)) is not None]
        values[field] = median(told) if len(told) == len(found) else None
    return Percentiles(**values)


def _samples(same: Sequence[Measurement]) -> dict[str, list[float]]:
    samples = {"output_tokens_per_s": [m.output_tokens_per_s for m in same]}
    for metric in METRICS:
        name, _, quantile = metric.key.rpartition("_")
        if name in LATENCIES:
            told = [getattr(m.latencies.get(name, NOTHING), quantile) for m in same]
            if None not in told:
                samples[metric.key] = told
    return samples
