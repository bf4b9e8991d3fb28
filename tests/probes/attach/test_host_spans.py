from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from probes.attach.host_spans import host_spans

HERD = "execute_context_0(0)_generation_4(4)"
EMPTY = "execute_context_0(0)_generation_0(0)"
PREFILL = "execute_context_2(64)_generation_0(0)"


def mark(name: str, at_us: float, for_us: float, kind: str = "user_annotation") -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "ts": at_us, "dur": for_us}


def write(folder: Path, stage: int, events: list[dict[str, Any]]) -> Path:
    path = folder / f"dp0_pp{stage}_tp0_dcp0_ep0_rank{stage}.1.pt.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    return path


def test_marks_of_two_stages_become_their_spans(tmp_path: Path) -> None:
    first = [mark(PREFILL, 0, 5), mark(EMPTY, 6, 1), mark(HERD, 20, 10), mark("aten::mm", 21, 2, "cpu_op")]
    second = [mark(PREFILL, 6, 4), mark(EMPTY, 12, 1), mark(HERD, 32, 8)]
    traces = [write(tmp_path, 0, first), write(tmp_path, 1, second)]
    frames = host_spans(traces, "server", 1_000_000)
    assert [(frame.stage, frame.rank, frame.t_ns, frame.window_ns) for frame in frames] == [
        (0, 0, 1_000_000, 40_000),
        (1, 1, 1_000_000, 40_000),
    ]
    held = [[(s.slot, s.step, s.decode, s.prefill_tokens) for s in frame.spans] for frame in frames]
    assert held == [[(0, 0, 0, 64), (0, 2, 4, 0)]] * 2  # the other slot had nothing to run
    decode = frames[1].spans[1]
    assert (decode.wait, decode.start, decode.end) == (-27_000, -8_000, 0)  # waited since the empty turn had ended


def test_traces_with_gpu_work_or_without_marks_tell_no_spans_here(tmp_path: Path) -> None:
    kernel = mark("gemm", 3, 1, "kernel")
    assert host_spans([write(tmp_path, 0, [mark(HERD, 0, 5), kernel])], "server", 0) == []
    assert host_spans([write(tmp_path, 0, [mark("aten::mm", 0, 5)])], "server", 0) == []


def test_stages_that_marked_different_micro_batches_are_not_compared(tmp_path: Path) -> None:
    traces = [write(tmp_path, 0, [mark(HERD, 0, 5)]), write(tmp_path, 1, [mark(HERD, 5, 5), mark(HERD, 11, 5)])]
    assert host_spans(traces, "server", 0) == []
