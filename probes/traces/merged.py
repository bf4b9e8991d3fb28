"""Writing all ranks as one cleaned trace on one clock, for ui.perfetto.dev (and for reading back).

GPU operations, launches and annotations are kept, operators are folded into `host busy`. Every process id carries its
rank's label, as in `[R01-PP01] host`.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from probes.traces.classify import OpKind
from probes.traces.intervals import Intervals
from probes.traces.load import TraceSet
from probes.traces.trace import Annotation, RankTrace

_CATEGORIES = {OpKind.COMPUTE: "kernel", OpKind.COMM: "kernel", OpKind.MEMORY: "gpu_memcpy"}


def write_merged(traces: TraceSet, path: Path) -> None:
    """Write the merged trace to `path` (.json, or .json.gz). Raise OSError."""
    base = min(trace.span[0] for trace in traces.ranks)
    base = min(base, *(a.start for trace in traces.ranks for a in trace.annotations[:1]))
    head = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base,
        "with_stack": int(any(trace.with_stack for trace in traces.ranks)),
        "distributedInfo": {"world_size": max(len(traces.ranks), *(trace.world for trace in traces.ranks))},
        "deviceProperties": [{"id": i, "name": trace.device} for i, trace in enumerate(traces.ranks)],
    }
    data = bytearray(orjson.dumps(head)[:-1] + b',"traceEvents":[')
    first = True
    for index, trace in enumerate(traces.ranks):
        for event in _events(trace, index, base, staged=traces.stages > 1):
            data += (b"\n" if first else b",\n") + orjson.dumps(event)
            first = False
    data += b"\n]}"
    path.write_bytes(gzip.compress(bytes(data), 6) if path.suffix == ".gz" else bytes(data))


def _events(trace: RankTrace, index: int, base: int, staged: bool) -> Iterator[dict[str, Any]]:
    label = f"[R{trace.rank:02d}-PP{trace.stage:02d}]" if staged else f"[R{trace.rank:02d}]"
    host, gpu = f"{label} host", f"{label} GPU"
    for pid, kind in ((host, "host"), (gpu, "GPU")):
        yield {
            "ph": "M",
            "name": "process_name",
            "pid": pid,
            "tid": 0,
            "ts": 0,
            "args": {"name": f"{trace.engine} rank {trace.rank} {kind}"},
        }
    yield from _gpu_events(trace, gpu, index, base)
    launches = trace.launches
    for start, end, correlation, graph in zip(
        launches.start.tolist(),
        launches.end.tolist(),
        launches.correlation.tolist(),
        launches.graph.tolist(),
        strict=True,
    ):
        name = "cudaGraphLaunch" if graph else "cudaLaunchKernel"
        yield {
            **_slice(name, "cuda_runtime", host, "launches", start - base, end - start),
            "args": {"correlation": correlation},
        }
    yield from _annotation_events(trace.annotations, "user_annotation", host, base)
    yield from _annotation_events(trace.gpu_annotations, "gpu_user_annotation", gpu, base)
    yield from _interval_events(trace.host_busy, "host busy", "cpu_op", host, base)
    yield from _interval_events(trace.host_blocked, "host blocked: synchronize", "cuda_runtime", host, base)
    yield from _interval_events(trace.profiler_overhead, "profiler", "overhead", host, base)


def _gpu_events(trace: RankTrace, pid: str, index: int, base: int) -> Iterator[dict[str, Any]]:
    ops = trace.ops
    told = iter(trace.comm)
    for start, end, stream, correlation, kind, name in zip(
        ops.start.tolist(),
        ops.end.tolist(),
        ops.stream.tolist(),
        ops.correlation.tolist(),
        ops.kind.tolist(),
        ops.name.tolist(),
        strict=True,
    ):
        args: dict[str, Any] = {"device": index, "stream": stream, "correlation": correlation}
        if kind == OpKind.COMM:
            op = next(told)
            args |= {"Collective name": op.op, "In msg nelems": op.elements, "bytes": op.bytes}
            args |= {"Process Group Ranks": op.group, "Src Rank": op.src, "Dst Rank": op.dst}
        category = _CATEGORIES[OpKind(kind)]
        yield {**_slice(ops.names[name], category, pid, f"stream {stream}", start - base, end - start), "args": args}


def _annotation_events(annotations: list[Annotation], category: str, pid: str, base: int) -> Iterator[dict[str, Any]]:
    for mark in annotations:
        yield _slice(mark.name, category, pid, mark.tid, mark.start - base, mark.end - mark.start)


def _interval_events(found: Intervals, name: str, category: str, pid: str, base: int) -> Iterator[dict[str, Any]]:
    for start, end in found.tolist():
        yield _slice(name, category, pid, name, start - base, end - start)


def _slice(name: str, category: str, pid: str, tid: str, start: int, length: int) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid, "ts": start / 1000, "dur": length / 1000}
