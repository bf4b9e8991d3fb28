"""Files that `guidellm benchmark --output-path FILE.json` writes: one report, one entry a load in `benchmarks`."""

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
    args = document.get("args")
    arguments: Mapping[str, Any] = args if isinstance(args, dict) else {}
    return to_result(
        path,
        TOOL,
        str(arguments.get("model") or ""),
        f"data {msgspec.json.encode(arguments.get('data')).decode()}",
        [_measurement(path, each) for each in document["benchmarks"]],
        DEFINITIONS,
    )


def _measurement(path: Path, benchmark: Mapping[str, Any]) -> Measurement:
    metrics = benchmark["metrics"]
    config = benchmark.get("config") or {}
    strategy = config.get("strategy") or benchmark.get("scheduler", {}).get("strategy") or {}
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
