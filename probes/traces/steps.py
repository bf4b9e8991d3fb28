"""Micro-batches of one rank, from the annotations that engines put around each step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from probes.traces.classify import OpKind
from probes.traces.intervals import Times, total, union
from probes.traces.trace import Annotation, RankTrace

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SGLANG = re.compile(r"^(?:herdscope )?step\[(\w+)(?:[ ,]+bs=(\d+))?(?:[ ,]+toks=(\d+))?")
_VLLM = re.compile(r"^execute_context_(\d+)\((\d+)\)_generation_(\d+)\((\d+)\)")


class Step(NamedTuple):
    """One micro-batch on one rank. Times in ns.

    host_start, host_end: its annotation on the host. start, end: from its first computing kernel's start to its last
    one's end. compute: GPU time inside that; expert: of it in experts' kernels. launches: runtime calls that launched
    its kernels; graph: whether one of them replayed a CUDA graph.
    """

    decode: int
    prefill: int
    host_start: int
    host_end: int
    start: int
    end: int
    compute: int
    expert: int
    kernels: int
    launches: int
    graph: bool


def parse_step(name: str) -> tuple[int, int] | None:
    """(decode requests, prefill tokens) of an annotation's name; None when it does not name a step."""
    if found := _VLLM.match(name):
        return int(found[3]), int(found[2])
    if found := _SGLANG.match(name):
        mode, size, tokens = found[1].upper(), int(found[2] or 0), int(found[3] or 0)
        if mode in ("DECODE", "TARGET_VERIFY", "VERIFY"):
            return size, 0
        if mode in ("IDLE", "DUMMY"):
            return 0, 0
        return 0, tokens or size
    return None


def steps(trace: RankTrace) -> list[Step]:
    """Every micro-batch with work for the GPU, in order; empty when the trace has no such annotations."""
    marks = _marks(trace.annotations) or _marks(trace.gpu_annotations)
    if not marks:
        return []
    on_host = bool(_marks(trace.annotations))
    ops = trace.ops
    at = launch_times(trace) if on_host and len(trace.launches) else ops.start
    starts = np.array([mark.start for mark, _ in marks], dtype=np.int64)
    ends = np.array([mark.end for mark, _ in marks], dtype=np.int64)
    owner = np.searchsorted(starts, at, side="right") - 1
    inside = (owner >= 0) & (at <= ends[np.maximum(owner, 0)]) & (ops.kind == OpKind.COMPUTE)
    chosen = np.flatnonzero(inside)
    bounds = np.searchsorted(owner[chosen], np.arange(len(marks) + 1)) if _ascending(owner[chosen]) else None
    graphs = set(trace.launches.correlation[trace.launches.graph].tolist())
    found = []
    for number, (mark, (decode, prefill)) in enumerate(marks):
        mine = chosen[bounds[number] : bounds[number + 1]] if bounds is not None else chosen[owner[chosen] == number]
        if not len(mine) or decode + prefill == 0:
            continue
        calls = set(ops.correlation[mine].tolist())
        found.append(
            Step(
                decode=decode,
                prefill=prefill,
                host_start=mark.start,
                host_end=mark.end,
                start=int(ops.start[mine].min()),
                end=int(ops.end[mine].max()),
                compute=total(union(ops.start[mine], ops.end[mine])),
                expert=int((ops.end[mine] - ops.start[mine])[ops.expert[mine]].sum()),
                kernels=len(mine),
                launches=len(calls),
                graph=bool(calls & graphs),
            )
        )
    return found


def launch_times(trace: RankTrace) -> Times:
    """When the host launched each GPU operation; the operation's own start where its launch was not recorded."""
    order = np.argsort(trace.launches.correlation, kind="stable")
    known = trace.launches.correlation[order]
    index = np.minimum(np.searchsorted(known, trace.ops.correlation), max(len(known) - 1, 0))
    if not len(known):
        return trace.ops.start
    matched = known[index] == trace.ops.correlation
    return np.where(matched, trace.launches.start[order][index], trace.ops.start)


def _marks(annotations: list[Annotation]) -> list[tuple[Annotation, tuple[int, int]]]:
    return [(a, parsed) for a in annotations if (parsed := parse_step(a.name)) is not None]


def _ascending(owners: NDArray[np.int64]) -> bool:
    return bool(np.all(np.diff(owners) >= 0))
