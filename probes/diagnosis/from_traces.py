"""Evidence from the traces of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median

import numpy as np

from probes.diagnosis.communication import P2P, communication
from probes.diagnosis.evidence import (
    UNKNOWN_SLOT,
    Decomposition,
    Evidence,
    GpuBreakdown,
    Parallelism,
    Profiler,
    RankTime,
    StageSpan,
)
from probes.diagnosis.rounds import assign_slots
from probes.traces import intervals
from probes.traces.breakdown import breakdown
from probes.traces.classify import OpKind
from probes.traces.decompose import TimeSplit, common_window, decode_window, split_time
from probes.traces.load import TraceSet
from probes.traces.steps import Step
from probes.traces.trace import RankTrace

_LEAST_AGREEMENT = 0.9
_ENGINES = {"sglang": "SGLang", "vllm": "vLLM", "herdscope": "Herdscope", "torch": "torch"}


def evidence_from_traces(traces: TraceSet) -> Evidence:
    """Everything that these traces tell."""
    rank_steps = traces.steps
    window = decode_window(rank_steps) or common_window(traces)
    splits = [split_time(traces, i, window) for i in range(len(traces.ranks))]
    parallelism = _parallelism(traces)
    stages = _stages(traces, parallelism)
    chosen = _representatives(traces, stages) if parallelism == "pp" else list(range(len(traces.ranks)))
    notes = list(traces.notes)
    spans = _spans(traces, rank_steps, chosen, stages, notes)
    decodes = max((sum(1 for s in found if s.decode and not s.prefill) for found in rank_steps), default=0)
    return Evidence(
        source="traces",
        engine=traces.engine,
        stages=stages,
        parallelism=parallelism,
        window=window[1] - window[0],
        ranks=[_rank_time(trace, split) for trace, split in zip(traces.ranks, splits, strict=True)],
        spans=spans,
        slot_count=stages if traces.engine == "vllm" and parallelism == "pp" else None,
        least_slots=stages,
        slots_assumed=traces.engine not in ("sglang", "vllm"),
        graphs=_graphs(rank_steps),
        communication=communication(traces, stages),
        profiler=_profiler(traces, rank_steps, window),
        host_by_stage=_host_by_stage(traces, splits, chosen, decodes),
        missing_ranks=traces.missing,
        cut_ranks=[trace.rank for trace in traces.ranks if trace.cut],
        residual_ns=traces.residual,
        overlap=_overlap(traces, chosen, window) if len(chosen) > 1 else None,
        cannot_see=_blind(traces, rank_steps),
        notes=notes,
    )


def _parallelism(traces: TraceSet) -> Parallelism:
    if traces.stages > 1 or any(op.op in P2P for trace in traces.ranks for op in trace.comm):
        return "pp"
    experts = any(bool(trace.ops.expert.any()) for trace in traces.ranks)
    together = any(not pairing.ordered for pairing in traces.matching.pairings)
    return "ep" if experts and (together or len(traces.ranks) > 1) else "unknown"


def _stages(traces: TraceSet, parallelism: Parallelism) -> int:
    if parallelism != "pp":
        return 1
    return max(traces.stages, 1 if traces.stages > 1 else max(len(traces.ranks), *(t.world for t in traces.ranks)))


def _representatives(traces: TraceSet, stages: int) -> list[int]:
    """One rank a stage: the first. Where stages are not named, ranks are stages."""
    named = traces.stages > 1
    first: dict[int, int] = {}
    for index, trace in enumerate(traces.ranks):
        first.setdefault(trace.stage if named else trace.rank, index)
    return [first[stage] for stage in sorted(first) if stage < stages]


def _spans(
    traces: TraceSet, rank_steps: Sequence[list[Step]], chosen: Sequence[int], stages: int, notes: list[str]
) -> list[StageSpan]:
    """Micro-batches of the chosen ranks, the same step number on every stage, slots found from who waits for whom."""
    first = chosen[0]
    reference = rank_steps[first]
    numbers = {first: list(range(len(reference)))}
    for index in chosen[1:]:
        if not reference and not rank_steps[index]:
            continue
        fitted = _numbered(reference, rank_steps[index])
        if fitted is None:
            notes.append(
                f"the steps of rank {traces.ranks[index].rank} do not fit those of rank {traces.ranks[first].rank}: "
                "they are not compared"
            )
            continue
        numbers[index] = fitted
    pipelined = stages > 1
    held = {index: _held(traces.ranks[index], rank_steps[index], pipelined) for index in numbers}
    last = next((i for i in numbers if traces.stage_of(i) == stages - 1), None) if pipelined else first
    slot_of: dict[int, int] = {}
    if last is not None and (not pipelined or traces.stage_of(first) == 0):
        ends = dict(zip(numbers[last], (end for _, end in held[last]), strict=True))
        slots = assign_slots(held[first], [ends.get(number) for number in numbers[first]])
        slot_of = dict(zip(numbers[first], slots, strict=True))
    spans = []
    for index, own in numbers.items():
        free = None
        for number, step, (start, end) in zip(own, rank_steps[index], held[index], strict=True):
            spans.append(
                StageSpan(
                    stage=traces.stage_of(index) if pipelined else 0,
                    rank=traces.ranks[index].rank,
                    step=number,
                    slot=slot_of.get(number, UNKNOWN_SLOT),
                    decode=step.decode,
                    prefill=step.prefill,
                    wait=start if free is None else min(free, start),
                    ready=start,
                    start=start,
                    end=end,
                    sent=end,
                    launch=0 if step.graph else step.host_end - step.host_start,
                    graph=step.graph,
                    compute=step.compute,
                    expert=step.expert,
                    kernels=step.kernels,
                    launches=step.launches,
                )
            )
            free = end
    return spans


def _numbered(reference: Sequence[Step], other: Sequence[Step]) -> list[int] | None:
    """Step numbers of `other` in the count of `reference`: the shift under which sizes agree and order is causal."""
    best: tuple[float, int] | None = None
    for shift in sorted(range(-len(other) + 1, len(reference)), key=abs):
        pairs = [(reference[i + shift], step) for i, step in enumerate(other) if 0 <= i + shift < len(reference)]
        if len(pairs) < (min(len(reference), len(other)) + 1) // 2:
            continue
        same = sum((a.decode, a.prefill) == (b.decode, b.prefill) for a, b in pairs) / len(pairs)
        causal = sum(b.end > a.start for a, b in pairs) / len(pairs)
        if same >= _LEAST_AGREEMENT and causal >= _LEAST_AGREEMENT and (best is None or same > best[0]):
            best = (same, shift)
    return None if best is None else [i + best[1] for i in range(len(other))]


def _held(trace: RankTrace, own: Sequence[Step], pipelined: bool) -> list[tuple[int, int]]:
    """When each step held the stage: its kernels' envelope, from the end of the receive that brought its input."""
    arrivals = [op for op in trace.comm if op.op in ("recv", "broadcast")] if pipelined else []
    starts = np.array([op.start for op in arrivals], dtype=np.int64)
    held = []
    for step in own:
        begin = step.start
        low, high = np.searchsorted(starts, (step.start, step.end))
        inside = [op.end for op in arrivals[low:high] if op.end < step.end]
        if inside and _computed_before(trace, step, max(inside)) < 0.25:
            begin = max(inside)
        held.append((begin, step.end))
    return held


def _computed_before(trace: RankTrace, step: Step, instant: int) -> float:
    low, high = np.searchsorted(trace.ops.start, (step.start, step.end))
    part = trace.ops.kind[low:high] == OpKind.COMPUTE
    lengths = (trace.ops.end[low:high] - trace.ops.start[low:high])[part]
    early = lengths[trace.ops.start[low:high][part] < instant]
    return float(early.sum()) / max(1.0, float(lengths.sum()))


def _rank_time(trace: RankTrace, split: TimeSplit) -> RankTime:
    label = trace.label or f"{_ENGINES[trace.engine]} rank {trace.rank}"
    return RankTime(
        rank=trace.rank,
        stage=trace.stage,
        label=f"{label}{f' on {trace.device}' if trace.device else ''}",
        window=split.window,
        decomposition=Decomposition(**split.fractions),
        breakdown=GpuBreakdown(**asdict(breakdown(trace))),
    )


def _graphs(rank_steps: Sequence[list[Step]]) -> bool | None:
    decodes = [step for found in rank_steps for step in found if step.decode and not step.prefill]
    return sum(step.graph for step in decodes) * 2 > len(decodes) if decodes else None


def _profiler(traces: TraceSet, rank_steps: Sequence[list[Step]], window: tuple[int, int]) -> Profiler:
    length = window[1] - window[0]
    whole = np.array([window], dtype=np.int64)
    overhead = max(intervals.total(intervals.both(t.profiler_overhead, whole)) for t in traces.ranks)
    stalled = 0
    for found in rank_steps:
        inside = [step for step in found if step.host_end > window[0] and step.host_start < window[1]]
        if inside:
            lengths = [step.host_end - step.host_start for step in inside]
            stalled = max(stalled, sum(n - round(median(lengths)) for n in lengths if n > 5 * median(lengths)))
    return Profiler(
        with_stack=any(trace.with_stack for trace in traces.ranks),
        overhead=overhead / length,
        stalled=min(1.0, stalled / length),
    )


def _host_by_stage(
    traces: TraceSet, splits: Sequence[TimeSplit], chosen: Sequence[int], decodes: int
) -> dict[int, float]:
    if not decodes:
        return {}
    return {traces.stage_of(index): splits[index].host / decodes / 1e9 for index in chosen}


def _overlap(traces: TraceSet, chosen: Sequence[int], window: tuple[int, int]) -> float:
    """Share of the window in which at least two of the chosen ranks compute."""
    whole = np.array([window], dtype=np.int64)
    any_yet = twice = intervals.EMPTY
    for index in chosen:
        ops = traces.ranks[index].ops
        computing = intervals.both(ops.busy(ops.kind != OpKind.COMM), whole)
        twice = intervals.joined(twice, intervals.both(any_yet, computing))
        any_yet = intervals.joined(any_yet, computing)
    return intervals.total(twice) / (window[1] - window[0])


def _blind(traces: TraceSet, rank_steps: Sequence[list[Step]]) -> list[str]:
    blind = ["queues and waiting requests", "tokens as clients receive them", "power"]
    if not any(rank_steps):
        blind.append("micro-batches (no step annotations: profile the server itself, not a part of it)")
    if traces.missing:
        blind.append(f"{len(traces.missing)} of {max(t.world for t in traces.ranks)} ranks")
    return blind
