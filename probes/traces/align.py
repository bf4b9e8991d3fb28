"""Putting several ranks on one clock, from the communication that they took part in together.

With clock_b = clock_a + offset, what a sends at s cannot have arrived at b before s: offset <= end_b - start_a, and
in a collective the other way round too. Where one side waited, both kernels end as the data arrives, so the
difference of their ends is the offset itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from probes.traces.match import WAITED_NS, Matching
from probes.traces.quantile import median
from probes.traces.trace import Annotation, CommOp, RankTrace

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Alignment:
    """Per rank: its clock's offset from the first rank's and the error left (ns); None where nothing ties it."""

    offsets: list[int | None]
    residuals: list[int | None]

    @property
    def residual(self) -> int | None:
        """The largest error left over all ranks that could be aligned; None for a single rank."""
        known = [value for value in self.residuals[1:] if value is not None]
        return max(known) if known else None


def align(traces: Sequence[RankTrace], matching: Matching) -> Alignment:
    """Estimate each rank's offset from the first one, over the shortest chain of ranks that communicate."""
    offsets: list[int | None] = [None] * len(traces)
    residuals: list[int | None] = [None] * len(traces)
    offsets[0] = residuals[0] = 0
    links = _links(traces, matching)
    queue = deque([0])
    while queue:
        a = queue.popleft()
        for b in range(len(traces)):
            if offsets[b] is not None or (a, b) not in links:
                continue
            offset, residual = links[a, b]
            offsets[b] = (offsets[a] or 0) + offset
            residuals[b] = (residuals[a] or 0) + residual
            queue.append(b)
    return Alignment(offsets, residuals)


def shifted(trace: RankTrace, offset: int) -> RankTrace:
    """The same rank on a clock that is `offset` ns behind its own."""
    if offset == 0:
        return trace

    def moved(marks: list[Annotation]) -> list[Annotation]:
        return [a._replace(start=a.start - offset, end=a.end - offset) for a in marks]

    return replace(
        trace,
        ops=replace(trace.ops, start=trace.ops.start - offset, end=trace.ops.end - offset),
        comm=[op._replace(start=op.start - offset, end=op.end - offset) for op in trace.comm],
        launches=replace(trace.launches, start=trace.launches.start - offset, end=trace.launches.end - offset),
        annotations=moved(trace.annotations),
        gpu_annotations=moved(trace.gpu_annotations),
        host_busy=trace.host_busy - offset,
        host_blocked=trace.host_blocked - offset,
        profiler_overhead=trace.profiler_overhead - offset,
    )


def _links(traces: Sequence[RankTrace], matching: Matching) -> dict[tuple[int, int], tuple[int, int]]:
    """(offset, residual) for both directions of every pair of ranks that communicates."""
    samples: dict[tuple[int, int], list[NDArray[np.int64]]] = {}
    for pairing in matching.pairings:
        low, high = min(pairing.a, pairing.b), max(pairing.a, pairing.b)
        a = _times([traces[pairing.a].comm[i] for i in pairing.a_ops])
        b = _times([traces[pairing.b].comm[i] for i in pairing.b_ops])
        forward = np.full(len(a), 1 if pairing.ordered else 0, dtype=np.int64)
        rows = np.column_stack((a, b, forward) if pairing.a == low else (b, a, -forward))
        samples.setdefault((low, high), []).append(rows)
    links: dict[tuple[int, int], tuple[int, int]] = {}
    for (low, high), parts in samples.items():
        offset, residual = _estimate(np.concatenate(parts))
        links[low, high] = (offset, residual)
        links[high, low] = (-offset, residual)
    return links


def _estimate(rows: NDArray[np.int64]) -> tuple[int, int]:
    """Offset of b from a and its residual, from rows of (start_a, end_a, start_b, end_b, direction of the data)."""
    start_a, end_a, start_b, end_b, direction = rows.T
    waited = _waited(end_a - start_a, direction <= 0) | _waited(end_b - start_b, direction >= 0)
    differences = (end_b - end_a)[waited] if waited.any() else end_b - end_a
    offset = median(differences)
    residual = median(np.abs(differences - offset))
    high = (end_b - start_a)[direction >= 0]
    low = (start_b - end_a)[direction <= 0]
    if len(high) and offset > high.min():
        residual, offset = max(residual, offset - float(high.min())), float(high.min())
    if len(low) and offset < low.max():
        residual, offset = max(residual, float(low.max()) - offset), float(low.max())
    return round(offset), round(residual)


def _waited(lengths: NDArray[np.int64], receives: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Operations that waited for data. A sender's length says nothing: small messages leave without a receiver."""
    if not receives.any():
        return receives
    waited: NDArray[np.bool_] = receives & (lengths > 3 * lengths[receives].min() + WAITED_NS)
    return waited


def _times(ops: list[CommOp]) -> NDArray[np.int64]:
    return np.array([(op.start, op.end) for op in ops], dtype=np.int64).reshape(-1, 2)
