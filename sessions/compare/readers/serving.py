"""Files of `vllm bench serve --save-result` and of SGLang's `bench_serving --output-file`: one JSON object, or one a
line, of much the same fields. Lines of the same load are repetitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sessions.compare.readers.foreign import Measurement, in_ms, number, optional, to_result
from sessions.results import BenchResult, Percentiles

SHARED = {
    "output_tokens_per_s": "output tokens over the whole run, the filling and draining of the load included",
    "ttft_ms": "from sending the request, so time that a late client lost is not counted; HTTP included",
    "e2e_ms": "from sending the request to the last chunk",
}
VLLM = {
    **SHARED,
    "itl_ms": "gaps between chunks of the stream; a chunk may hold several tokens",
    "tpot_ms": "(e2e - TTFT) / (output tokens - 1)",
}
SGLANG = {
    **SHARED,
    "itl_ms": "gaps between chunks, divided evenly over the tokens that a chunk holds",
    "tpot_ms": "(e2e - TTFT) / (output tokens - 1)",
}
SGLANG_MARKS = ("total_output_tokens_retokenized", "random_range_ratio", "sharegpt_output_len", "server_info")


def is_serving(rows: Sequence[Any]) -> bool:
    """Whether these objects are such results."""
    return bool(rows) and all(
        isinstance(row, dict) and "output_throughput" in row and "completed" in row for row in rows
    )


def read_serving(path: Path, rows: Sequence[Mapping[str, Any]]) -> BenchResult:
    """Read them. Raise UnreadableResult for a field that is missing."""
    first = rows[0]
    sglang = any(mark in first for mark in SGLANG_MARKS)
    work = _sglang_work(first) if sglang else _vllm_work(first)
    return to_result(
        path,
        "SGLang bench_serving" if sglang else "vLLM bench serve",
        str(first.get("model_id") or first.get("model") or first.get("backend") or ""),
        work,
        [_measurement(path, row) for row in rows],
        SGLANG if sglang else VLLM,
        str(first.get("date", "")),
    )


def _vllm_work(row: Mapping[str, Any]) -> str:
    return f"{row.get('num_prompts')} prompts of {row.get('total_input_tokens')} tokens in all"


def _sglang_work(row: Mapping[str, Any]) -> str:
    asked = ("dataset_name", "random_input_len", "random_output_len", "random_range_ratio", "sharegpt_output_len")
    return ", ".join(
        [*(f"{name} {row[name]}" for name in asked if row.get(name) is not None), f"{row['completed']} done"]
    )


def _measurement(path: Path, row: Mapping[str, Any]) -> Measurement:
    cap = optional(row, "max_concurrency")
    finished = round(number(row, "completed", path))
    asked = optional(row, "num_prompts")
    failed = optional(row, "failed")
    if failed is None:
        failed = max(0.0, asked - finished) if asked is not None else 0.0
    return Measurement(
        concurrency=round(cap) if cap is not None else None,
        rate=_finite(optional(row, "request_rate")),
        output_tokens_per_s=number(row, "output_throughput", path),
        latencies={
            "ttft_ms": _detailed(row, "ttfts") or _summary(row, "ttft_ms"),
            "itl_ms": _detailed(row, "itls") or _summary(row, "itl_ms"),
            "tpot_ms": _summary(row, "tpot_ms"),
            "e2e_ms": _summary(row, "e2el_ms" if "median_e2el_ms" in row else "e2e_latency_ms"),
        },
        finished=finished,
        failed=round(failed),
        duration_s=number(row, "duration", path),
    )


def _summary(row: Mapping[str, Any], name: str) -> Percentiles:
    return Percentiles(
        p50=optional(row, f"median_{name}"),
        p90=optional(row, f"p90_{name}"),
        p99=optional(row, f"p99_{name}"),
        mean=optional(row, f"mean_{name}"),
    )


def _detailed(row: Mapping[str, Any], name: str) -> Percentiles | None:
    """Percentiles from the values of every request, where the file keeps them (seconds)."""
    values = row.get(name)
    if not isinstance(values, list) or not values:
        return None
    flat = [v for each in values for v in (each if isinstance(each, list) else [each])]
    numbers = [v for v in flat if isinstance(v, int | float) and v > 0]
    return in_ms(numbers) if numbers else None


def _finite(rate: float | None) -> float | None:
    return rate if rate is not None and 0 < rate < float("inf") else None
