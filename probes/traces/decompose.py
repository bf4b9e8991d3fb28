"""Where each rank's time went, to 100 %.

compute       the GPU computed (or copied its own memory);
wire          only communication ran, and it moved data: no longer than the shortest partner's kernel;
comm_wait     only communication ran, and it waited for a peer;
launch_gap    the GPU idled inside a micro-batch: the host had not launched the next kernel yet;
host          the GPU idled while the host scheduled, sampled or prepared;
bubble        the GPU idled because this rank had no micro-batch.
(Pipeline theory, docs/theory.md.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probes.traces import intervals
from probes.traces.classify import OpKind
from probes.traces.intervals import Intervals
from probes.traces.load import TraceSet
from probes.traces.steps import Step
from probes.traces.trace import RankTrace

_SCHEDULER_MARKS = re.compile(
    r"^(scheduler\.|recv_requests|get_next_batch_to_run|process_batch_result|process_input_requests|run_batch"
    r"|send_\w+_to_next_stage|recv_\w+_from_prev_stage|gpu_model_runner|preprocess|postprocess|sample|schedule)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class TimeSplit:
    """One rank's window, ns; the six parts sum to `window`. `comm` is all communication kernel time, hidden or not."""

    window: int
    compute: int
    wire: int
    launch_gap: int
    comm_wait: int
    host: int
    bubble: int
    comm: int
    comm_waiting: int

    @property
    def fractions(self) -> dict[str, float]:
        """The six parts as shares of the window; they sum to 1."""
        names = ("compute", "wire", "launch_gap", "comm_wait", "host", "bubble")
        return {name: getattr(self, name) / self.window for name in names}


def decode_window(trace_steps: Sequence[list[Step]]) -> tuple[int, int] | None:
    """The stretch in which every rank decodes: from the last rank's first decode step to the first one's last.

    None when some rank has no decode step.
    """
    spans = []
    for rank_steps in trace_steps:
        decodes = [step for step in rank_steps if step.decode and not step.prefill]
        if not decodes:
            return None
        spans.append((decodes[0].host_start, decodes[-1].host_end))
    start, end = max(span[0] for span in spans), min(span[1] for span in spans)
    return (start, end) if end > start else None


def common_window(traces: TraceSet) -> tuple[int, int]:
    """The stretch in which every rank's GPU was recorded; all of it when they share no moment."""
    start, end = (max(t.span[0] for t in traces.ranks), min(t.span[1] for t in traces.ranks))
    if end > start:
        return start, end
    return min(t.span[0] for t in traces.ranks), max(t.span[1] for t in traces.ranks)


def split_time(traces: TraceSet, index: int, window: tuple[int, int]) -> TimeSplit:
    """Decompose the time of rank index `index` within `window`."""
    trace = traces.ranks[index]
    start, end = window
    whole = np.array([window], dtype=np.int64)
    ops = trace.ops
    computing = intervals.both(ops.busy(ops.kind != OpKind.COMM), whole)
    communicating = intervals.both(ops.busy(ops.kind == OpKind.COMM), whole)
    moving = intervals.both(wire_times(traces, index), communicating)
    shown = intervals.without(communicating, computing)
    wire = intervals.both(moving, shown)
    idle = intervals.without(intervals.without(whole, computing), communicating)
    launching, scheduling = _host_reasons(trace, traces.steps[index])
    launch = intervals.both(idle, launching)
    rest = intervals.without(idle, launching)
    host = intervals.both(rest, scheduling)
    bubble = intervals.without(rest, scheduling)
    total = intervals.total
    return TimeSplit(
        window=end - start,
        compute=total(computing),
        wire=total(wire),
        launch_gap=total(launch),
        comm_wait=total(shown) - total(wire),
        host=total(host),
        bubble=total(bubble),
        comm=total(communicating),
        comm_waiting=total(communicating) - total(moving),
    )


def wire_times(traces: TraceSet, index: int) -> Intervals:
    """When this rank's communication moved data: the end of each operation, as long as its shortest participant's.

    An operation without known partners is taken to move for as long as the shortest of its kind on this rank.
    """
    trace = traces.ranks[index]
    shortest: dict[tuple[str, int], int] = {}
    for op in trace.comm:
        key = (op.op, op.elements)
        shortest[key] = min(shortest.get(key, op.end - op.start), op.end - op.start)
    moving = []
    for i, op in enumerate(trace.comm):
        partners = traces.matching.partners[index][i]
        if partners:
            lengths = (traces.ranks[r].comm[j].end - traces.ranks[r].comm[j].start for r, j in partners)
            wire = min(op.end - op.start, *lengths)
        else:
            wire = shortest[op.op, op.elements]
        moving.append((op.end - wire, op.end))
    return intervals.of(moving)


def _host_reasons(trace: RankTrace, rank_steps: Sequence[Step]) -> tuple[Intervals, Intervals]:
    """(the host was launching a micro-batch, the host was scheduling), where the GPU idles."""
    working = intervals.without(trace.host_busy, trace.host_blocked)
    if not rank_steps:
        everything = np.array([(trace.span[0], trace.span[1])], dtype=np.int64)
        return working, intervals.without(everything, trace.host_blocked)
    inside = intervals.joined(
        intervals.of((step.host_start, step.host_end) for step in rank_steps),
        intervals.of((step.start, step.end) for step in rank_steps),
    )
    marks = intervals.of((a.start, a.end) for a in trace.annotations if _SCHEDULER_MARKS.match(a.name))
    return intervals.without(inside, trace.host_blocked), intervals.without(marks, trace.host_blocked)
