"""The part of a recording in which the pipeline does nothing but decode, without stalls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from probes.diagnosis.evidence import UNKNOWN_SLOT, StageSpan

_STALL = 5.0
"""A micro-batch that held a stage this many times longer than the median one is a stall (a first run, a pause)."""
_ENOUGH = 8


def steady_spans(spans: Sequence[StageSpan]) -> list[StageSpan]:
    """Decode spans of the stretches of steps without prefill and without stalls: the longest stretch, or all of them
    together when none has 8 steps."""
    by_step: dict[int, list[StageSpan]] = defaultdict(list)
    for span in spans:
        by_step[span.step].append(span)
    limits = _stall_limits(spans)
    runs: list[list[StageSpan]] = [[]]
    lengths = [0]
    for step in sorted(by_step):
        members = by_step[step]
        if all(s.decode and not s.prefill and s.end - s.start <= limits[s.stage] for s in members):
            runs[-1] += members
            lengths[-1] += 1
        elif lengths[-1]:
            runs.append([])
            lengths.append(0)
    longest = max(range(len(runs)), key=lambda i: lengths[i])
    if lengths[longest] >= _ENOUGH:
        return runs[longest]
    return [span for run in runs for span in run]


def cycle_ns(spans: Sequence[StageSpan]) -> float | None:
    """Median time from a slot's start on the first stage to its next one."""
    gaps: list[int] = []
    previous: dict[int, int] = {}
    for span in first_stage(spans):
        if span.slot == UNKNOWN_SLOT:
            continue
        if span.slot in previous:
            gaps.append(span.start - previous[span.slot])
        previous[span.slot] = span.start
    return median(gaps) if gaps else None


def first_stage(spans: Sequence[StageSpan]) -> list[StageSpan]:
    """Spans of the first stage in order of start; of its first rank, where several share it."""
    mine = [span for span in spans if span.stage == 0]
    rank = min((span.rank for span in mine), default=0)
    return sorted((span for span in mine if span.rank == rank), key=lambda span: span.start)


def _stall_limits(spans: Sequence[StageSpan]) -> dict[int, float]:
    lengths: dict[int, list[int]] = defaultdict(list)
    for span in spans:
        if span.decode and not span.prefill:
            lengths[span.stage].append(span.end - span.start)
    limits: dict[int, float] = defaultdict(float)
    limits.update({stage: _STALL * median(values) for stage, values in lengths.items()})
    return limits
