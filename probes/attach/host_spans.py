"""Spans of each stage from the traces of a server without GPUs, whose ranks mark the micro-batches they run.

A trace without GPU work says nothing about kernels, but vLLM's workers mark each micro-batch with what is in it, and on
a CPU the mark lasts as long as the computing. The ranks share a host and its clock, so the marks need no aligning.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import orjson

from probes.traces.steps import parse_step
from sessions.messages import Span, StageFrame

_STAGE = re.compile(r"(?:^|_)pp(\d+)_tp0_")


class _Step(msgspec.Struct, frozen=True):
    """A mark: nanoseconds of the trace's clock, decode requests and prompt tokens."""

    start: int
    end: int
    decode: int
    prefill_tokens: int


def host_spans(traces: Sequence[Path], source: str, now_ns: int) -> list[StageFrame]:
    """A frame for each pipeline stage (its first tensor-parallel rank), the newest span at `now_ns`.

    Empty when a trace holds GPU work (the traces tell more then), when no micro-batch is marked, or when the stages
    marked different ones. Slots are the places of vLLM's batch queue, which it fills in turn: as many as stages.
    """
    by_stage: dict[int, list[_Step]] = {}
    for path in traces:
        if found := _STAGE.search(path.name):
            events = _events(path)
            if any(event.get("cat") == "kernel" for event in events):
                return []
            by_stage[int(found[1])] = _steps(events)
    counts = {len(steps) for steps in by_stage.values()}
    if sorted(by_stage) != list(range(len(by_stage))) or len(counts) != 1 or counts == {0}:
        return []
    last = max(steps[-1].end for steps in by_stage.values())
    return [
        StageFrame(
            source=source,
            t_ns=now_ns,
            stage=stage,
            rank=stage,
            window_ns=last - min(found[0].start for found in by_stage.values()),
            spans=_spans(by_stage, stage, last),
        )
        for stage in sorted(by_stage)
    ]


def _spans(by_stage: dict[int, list[_Step]], stage: int, zero: int) -> list[Span]:
    """A stage waits from the end of its step before until its mark begins; empty turns hold no micro-batch."""
    spans = []
    free = by_stage[stage][0].start
    for number, step in enumerate(by_stage[stage]):
        if step.decode or step.prefill_tokens:
            start, end = step.start - zero, step.end - zero
            slot = number % len(by_stage)
            spans.append(Span(slot, number, step.decode, step.prefill_tokens, free - zero, start, start, end, end))
        free = step.end
    return spans


def _steps(events: Sequence[dict[str, Any]]) -> list[_Step]:
    steps = []
    for event in events:
        held = parse_step(str(event.get("name", ""))) if event.get("ph") == "X" else None
        if held is not None:
            start = round(event["ts"] * 1000)
            steps.append(_Step(start, start + round(event["dur"] * 1000), decode=held[0], prefill_tokens=held[1]))
    return sorted(steps, key=lambda step: step.start)


def _events(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    found = orjson.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    events: list[dict[str, Any]] = found.get("traceEvents", [])
    return events
