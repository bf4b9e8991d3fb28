"""The summary that `aiperf profile` writes, profile_export_aiperf.json: one stats block a metric."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sessions.compare.readers.foreign import NOTHING, Measurement, UnreadableResult, optional, to_result
from sessions.results import BenchResult, Percentiles

TOOL = "aiperf"
DEFINITIONS = {
    "output_tokens_per_s": "output tokens over the whole run, the filling and draining of the load included",
    "ttft_ms": "from sending the request; HTTP included",
    "itl_ms": "one mean a request, (e2e - TTFT) / (tokens - 1): our TPOT, with shorter tails than single gaps have",
    "e2e_ms": "from sending the request to the end of the response",
}
TO_MS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "ns": 1e-6}


def is_aiperf(document: Any) -> bool:
    """Whether this object is such a summary."""
    if not isinstance(document, dict):
        return False
    block = document.get("request_latency")
    return isinstance(block, dict) and "unit" in block


def read_aiperf(path: Path, document: Mapping[str, Any]) -> BenchResult:
    """Read it. Raise UnreadableResult for a metric that is missing."""
    config = document.get("input_config") or {}
    load = config.get("loadgen") or {}
    models = (config.get("endpoint") or {}).get("model_names") or [""]
    throughput = _average(document, "output_token_throughput")
    if throughput is None:
        raise UnreadableResult(f"{path}: output_token_throughput is missing")
    concurrency = optional(load, "concurrency")
    gaps = _block(document, "inter_token_latency")
    finished = _average(document, "request_count") or 0
    prompts, outputs = _average(document, "input_sequence_length"), _average(document, "output_sequence_length")
    measurement = Measurement(
        concurrency=round(concurrency) if concurrency is not None else None,
        rate=optional(load, "request_rate"),
        output_tokens_per_s=throughput,
        latencies={
            "ttft_ms": _block(document, "time_to_first_token"),
            "itl_ms": gaps,
            "tpot_ms": gaps,
            "e2e_ms": _block(document, "request_latency"),
        },
        finished=round(finished),
        failed=round(_average(document, "error_request_count") or 0),
        duration_s=_average(document, "benchmark_duration") or 0.0,
    )
    work = f"{finished:.0f} requests, {_words(prompts)} tokens in, {_words(outputs)} out on average"
    return to_result(path, TOOL, str(models[0]), work, [measurement], DEFINITIONS, str(document.get("start_time", "")))


def _average(document: Mapping[str, Any], name: str) -> float | None:
    block = document.get(name)
    return optional(block, "avg") if isinstance(block, dict) else None


def _block(document: Mapping[str, Any], name: str) -> Percentiles:
    block = document.get(name)
    if not isinstance(block, dict):
        return NOTHING
    scale = TO_MS.get(str(block.get("unit")))
    if scale is None:
        return NOTHING
    found = {field: optional(block, field) for field in ("p50", "p90", "p99", "avg")}
    scaled = {field: None if value is None else value * scale for field, value in found.items()}
    return Percentiles(p50=scaled["p50"], p90=scaled["p90"], p99=scaled["p99"], mean=scaled["avg"])


def _words(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f}"
