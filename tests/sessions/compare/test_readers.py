"""Result files of other tools. Where no real file is named the sample follows the tool's published schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sessions.bench.files import write_result
from sessions.compare.compare import WorkloadMismatch, compare_runs
from sessions.compare.readers import read_any
from sessions.compare.readers.foreign import UnreadableResult

from .synthetic import noisy

VLLM = {
    "date": "20261101-101010", "endpoint_type": "openai", "model_id": "Qwen/Qwen3-30B-A3B", "num_prompts": 64,
    "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 16, "duration": 20.0, "completed": 63, "failed": 1,
    "total_input_tokens": 8192, "total_output_tokens": 8064, "output_throughput": 403.2, "mean_ttft_ms": 110.0,
    "median_ttft_ms": 100.0, "std_ttft_ms": 5.0, "p99_ttft_ms": 180.0, "mean_tpot_ms": 12.0, "median_tpot_ms": 11.5,
    "p99_tpot_ms": 15.0, "mean_itl_ms": 12.0, "median_itl_ms": 11.0, "p99_itl_ms": 40.0, "median_e2el_ms": 1600.0,
    "p99_e2el_ms": 1900.0,
}  # fmt: skip
SGLANG = {
    "backend": "sglang", "dataset_name": "random", "request_rate": float("inf"), "max_concurrency": 16,
    "random_input_len": 128, "random_output_len": 128, "random_range_ratio": 1.0, "duration": 10.0, "completed": 64,
    "total_output_tokens": 8192, "total_output_tokens_retokenized": 8190, "output_throughput": 819.0,
    "mean_e2e_latency_ms": 1500.0, "median_e2e_latency_ms": 1490.0, "median_ttft_ms": 90.0, "p99_ttft_ms": 120.0,
    "median_tpot_ms": 11.0, "p99_tpot_ms": 12.0, "median_itl_ms": 10.5, "p95_itl_ms": 14.0, "p99_itl_ms": 20.0,
    "concurrency": 15.7,
}  # fmt: skip


def distribution(p50: float) -> dict:
    return {
        "successful": {"mean": p50 * 1.1, "median": p50, "percentiles": {"p50": p50, "p90": p50 * 2, "p99": p50 * 3}}
    }


GUIDELLM = {
    "args": {"model": "m", "data": ["prompt_tokens=128,output_tokens=64"]},
    "benchmarks": [
        {
            "config": {"strategy": {"type_": "concurrent", "streams": streams}},
            "duration": 30.0,
            "metrics": {
                "request_totals": {"successful": 100, "incomplete": 3, "errored": 1, "total": 104},
                "output_tokens_per_second": distribution(50.0 * streams),
                "time_to_first_token_ms": distribution(80.0),
                "inter_token_latency_ms": distribution(12.0),
                "time_per_output_token_ms": distribution(13.0),
                "request_latency": distribution(1.5),
            },
        }
        for streams in (1, 8)
    ],
}
AIPERF = {
    "schema_version": "1.0",
    "input_config": {"endpoint": {"model_names": ["m"]}, "loadgen": {"concurrency": 8}},
    "request_latency": {"unit": "ms", "avg": 1500.0, "p50": 1400.0, "p90": 1600.0, "p99": 1800.0},
    "time_to_first_token": {"unit": "ms", "avg": 90.0, "p50": 85.0, "p90": 100.0, "p99": 140.0},
    "inter_token_latency": {"unit": "sec", "avg": 0.011, "p50": 0.0105, "p90": 0.012, "p99": 0.013},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 700.0},
    "request_count": {"unit": "requests", "avg": 60.0},
    "error_request_count": {"unit": "requests", "avg": 2.0},
    "benchmark_duration": {"unit": "sec", "avg": 12.0},
    "input_sequence_length": {"unit": "tokens", "avg": 128.0},
    "output_sequence_length": {"unit": "tokens", "avg": 128.0},
}


def write(path: Path, *documents: object) -> Path:
    path.write_text("\n".join(json.dumps(document) for document in documents))
    return path


def test_vllm_bench_serve(tmp_path):
    result = read_any(write(tmp_path / "v.json", VLLM))
    (point,) = result.points
    assert result.tool == "vLLM bench serve" and result.engine.model == "Qwen/Qwen3-30B-A3B"
    assert (point.load, point.concurrency, point.output_tokens_per_s) == ("C=16", 16, 403.2)
    assert (point.ttft_ms.p50, point.itl_ms.p99, point.tpot_ms.p50, point.e2e_ms.p50) == (100.0, 40.0, 11.5, 1600.0)
    assert (point.requests.finished, point.requests.failed) == (63, 1)
    assert point.ttft_ms.p90 is None


def test_vllms_detailed_lists_give_every_percentile(tmp_path):
    detailed = {**VLLM, "ttfts": [0.1, 0.2, 0.3, 0.4, 0.5], "itls": [[0.01, 0.02], [0.03]]}
    point = read_any(write(tmp_path / "v.json", detailed)).points[0]
    assert point.ttft_ms.p50 == pytest.approx(300) and point.ttft_ms.p90 == pytest.approx(460)
    assert point.itl_ms.p50 == pytest.approx(20)


def test_lines_of_the_same_load_are_repetitions(tmp_path):
    lines = [{**SGLANG, "output_throughput": 800.0 + i} for i in range(5)]
    result = read_any(write(tmp_path / "s.jsonl", *lines))
    (point,) = result.points
    assert result.tool == "SGLang bench_serving"
    assert point.repetitions == [800, 801, 802, 803, 804] and point.output_tokens_per_s == 802
    assert point.samples["ttft_ms_p50"] == [90.0] * 5 and point.e2e_ms.p50 == 1490.0
    assert point.requests.finished == 320


def test_sglangs_arrivals_at_a_rate(tmp_path):
    line = {**SGLANG, "request_rate": 3.5, "max_concurrency": None}
    point = read_any(write(tmp_path / "s.jsonl", line)).points[0]
    assert point.load == "3.5/s" and point.rate_per_s == 3.5


def test_guidellm(tmp_path):
    result = read_any(write(tmp_path / "g.json", GUIDELLM))
    assert [point.load for point in result.points] == ["C=1", "C=8"]
    point = result.points[1]
    assert point.output_tokens_per_s == pytest.approx(440) and point.e2e_ms.p99 == pytest.approx(4500)
    assert (point.requests.finished, point.requests.failed) == (100, 4)
    assert "our TPOT" in result.definitions["itl_ms"]


def test_a_real_report_of_guidellm_0_8_1():
    """Two loads, measured against our own server on a CPU; cut down to what is read."""
    result = read_any(Path(__file__).parent / "data" / "guidellm-0.8.1.json")
    assert result.engine.model == "tiny-qwen3-moe"
    assert "prompt_tokens 16, output_tokens 8" in result.workload.key
    assert [(p.load, p.requests.finished) for p in result.points] == [("C=1", 4), ("C=2", 4)]
    assert [p.output_tokens_per_s for p in result.points] == pytest.approx([12.835, 38.012], abs=0.001)
    assert result.points[0].e2e_ms.p50 == pytest.approx(560.74, abs=0.01)


def test_aiperf(tmp_path):
    result = read_any(write(tmp_path / "a.json", AIPERF))
    (point,) = result.points
    assert (point.load, point.output_tokens_per_s, point.duration_s) == ("C=8", 700.0, 12.0)
    assert point.itl_ms.p50 == pytest.approx(10.5) and point.tpot_ms == point.itl_ms
    assert (point.requests.finished, point.requests.failed) == (60, 2)


def test_our_own_results_are_read_by_the_same_function(tmp_path):
    import random

    result = noisy(random.Random(0), 5)
    write_result(tmp_path / "o.json", result)
    assert read_any(tmp_path / "o.json") == result


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("[1, 2]", "is no result of"),
        ('{"a": 1}', "is no result of"),
        ("{", "neither JSON nor JSON lines"),
        (json.dumps({**VLLM, "output_throughput": "fast"}), "output_throughput must be a number"),
        (json.dumps({**AIPERF, "output_token_throughput": None}), "output_token_throughput is missing"),
        (json.dumps({"format": 99, "points": []}), "result format 99"),
        (json.dumps({"format": 1, "points": [{}]}), "is not a benchmark result"),
    ],
)
def test_a_file_that_is_no_result_is_named(tmp_path, text, said):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        read_any(path)
    assert issubclass(UnreadableResult, ValueError)


def test_different_tools_compare_only_by_force_and_say_how_their_definitions_differ(tmp_path):
    runs = [read_any(write(tmp_path / "v.json", VLLM)), read_any(write(tmp_path / "s.json", SGLANG))]
    with pytest.raises(WorkloadMismatch):
        compare_runs(runs)
    pair = compare_runs(runs, force=True).pairs[0]
    assert any("s: SGLang bench_serving defines itl_ms as gaps between chunks, divided" in w for w in pair.warnings)
    assert next((d.what, d.base, d.other) for d in pair.differences) == (
        "tool", "vLLM bench serve", "SGLang bench_serving",
    )  # fmt: skip
    assert pair.rows[0].ratio == pytest.approx(819.0 / 403.2)
