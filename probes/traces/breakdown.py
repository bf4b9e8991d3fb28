"""Idle, compute and non-compute time of one rank's GPU, by the definitions of Holistic Trace Analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from probes.traces.classify import OpKind
from probes.traces.intervals import total
from probes.traces.trace import RankTrace

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Breakdown:
    """ns. `span` runs from the first GPU operation to the last; idle + compute + non_compute = span.

    compute: some computing kernel runs; non_compute: only communication or memory operations run.
    """

    idle: int
    compute: int
    non_compute: int
    span: int


def breakdown(trace: RankTrace, whole: bool = True) -> Breakdown:
    """The temporal breakdown of Holistic Trace Analysis, without rounding times to whole microseconds.

    `whole` False leaves out what the last ProfilerStep launched, as that tool does by default when there are several.
    """
    ops = trace.ops
    chosen = np.ones(len(ops), dtype=np.bool_) if whole else _launched_before(trace, _last_profiler_step(trace))
    start, end = int(ops.start[chosen].min()), int(ops.end[chosen].max())
    busy = total(ops.busy(chosen))
    compute = total(ops.busy(chosen & (ops.kind == OpKind.COMPUTE)))
    return Breakdown(idle=end - start - busy, compute=compute, non_compute=busy - compute, span=end - start)


def _last_profiler_step(trace: RankTrace) -> int | None:
    steps = {a.name: a.start for a in trace.annotations if a.name.startswith("ProfilerStep")}
    return max(steps.values()) if len(steps) > 1 else None


def _launched_before(trace: RankTrace, until: int | None) -> NDArray[np.bool_]:
    if until is None:
        return np.ones(len(trace.ops), dtype=np.bool_)
    early = trace.launches.correlation[trace.launches.start < until]
    return np.isin(trace.ops.correlation, early)
