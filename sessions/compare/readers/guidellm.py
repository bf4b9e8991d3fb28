"""JSON reports of guidellm, one entry a load in `benchmarks`; since 0.8 `config.spec` says what was asked, before that
`args` did."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from sessions.compare.readers.foreign import NOTHING, Measurement, UnreadableResult, number, optional, to_result
from sessions.results import BenchResult, Percentiles

TOOL = "guidellm"
DEFINITIONS = {
    "output_tokens_per_s": "mean over time of the finished requests' tokens, between guidellm's warm-up and cool-down",
    "ttft_ms": "from the start of the request as the client sends it; HTTP included",
    "itl_ms": "one mean a request, (last - first token) / (tokens - 1), weighted by its tokens: our TPOT, with shorter "
    "tails than single gaps have",
    "tpot_ms": "(last token - start of the request) / tokens: the first token's wait is in it",
}


def is_guidellm(document: Any) -> bool:
    """Whether this object is such a report."""
    benchmarks = document.get("benchmarks") if isinstance(document, dict) else None
    return isinstance(benchmarks, list) and bool(benchmarks) and all("metrics" in each for each in benchmarks)


def read_guidellm(path: Path, document: Mapping[str, Any]) -> BenchResult:
    """Read it. Raise UnreadableResult for a field that is missing."""
    asked = _dict(document.get("config")).get("spec") or _dict(document.get("args"))
    return to_result(
        path,
        TOOL,
        _model(document, asked),
        _words(asked.get("data")),
        [_measurement(path, each) for each in document["benchmarks"]],
        DEFINITIONS,
    )


def _model(document: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """The model: as asked for, else as the backend found it."""
    backend = _dict(_dict(document["benchmarks"][0].get("config")).get("backend"))
    return str(asked.get("model") or _dict(asked.get("backend")).get("model") or backend.get("model") or "")


def _words(data: Any) -> str:
    """What was asked, in words: the plain settings of each source of data."""
    words: list[str] = []
    for source in data if isinstance(data, list) else [data]:
        plain = (
            {k: v for k, v in source.items() if isinstance(v, str | int | float)} if isinstance(source, dict) else {}
        )
        words.append(", ".join(f"{key} {value}" for key, value in plain.items()) or str(source))
    return "; ".join(words)


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _measurement(path: Path, benchmark: Mapping[str, Any]) -> Measurement:
    metrics = benchmark["metrics"]
    strategy = _dict(_dict(benchmark.get("config")).get("strategy"))
    streams = optional(strategy, "streams")
    rate = optional(strategy, "rate")
    totals = metrics.get("request_totals") or {}
    output = _distribution(metrics, "output_tokens_per_second")
    if output is None or output.mean is None:
        raise UnreadableResult(f"{path}: metrics.output_tokens_per_second.successful.mean is missing")
    latency = _distribution(metrics, "request_latency")
    return Measurement(
        concurrency=round(streams) if streams is not None else (1 if strategy.get("type_") == "synchronous" else None),
        rate=rate if streams is None else None,
        output_tokens_per_s=output.mean,
        latencies={
            "ttft_ms": _distribution(metrics, "time_to_first_token_ms") or NOTHING,
            "itl_ms": _distribution(metrics, "inter_token_latency_ms") or NOTHING,
            "tpot_ms": _distribution(metrics, "time_per_output_token_ms") or NOTHING,
            "e2e_ms": _in_ms(latency) if latency else NOTHING,
        },
        finished=round(optional(totals, "successful") or 0),
        failed=round((optional(totals, "errored") or 0) + (optional(totals, "incomplete") or 0)),
        duration_s=number(benchmark, "duration", path),
    )


def _distribution(metrics: Mapping[str, Any], name: str) -> Percentiles | None:
    """The distribution over the requests that finished."""
    found = (metrics.get(name) or {}).get("successful")
    if not isinstance(found, dict):
        return None
    shares = found.get("percentiles") or {}
    return Percentiles(
        p50=optional(shares, "p50") or optional(found, "median"),
        p90=optional(shares, "p90"),
        p99=optional(shares, "p99"),
        mean=optional(found, "mean"),
    )


def _in_ms(seconds: Percentiles) -> Percentiles:
    scaled = {name: None if value is None else value * 1e3 for name, value in msgspec.structs.asdict(seconds).items()}
    return Percentiles(**scaled)
