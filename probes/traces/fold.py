"""Folding a file's events into one RankTrace a rank; a merged file holds several."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from probes.traces import classify, identity
from probes.traces.events import GPU, RUNTIME, Args, Event, Operators, TraceFile
from probes.traces.intervals import Intervals, Times, joined, union
from probes.traces.trace import UNKNOWN, Annotation, CommOp, GpuOps, Launches, RankTrace

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCKING_MARKS = re.compile(r"^gloo:|^recv_res_dict|^mooncake:|barrier", re.IGNORECASE)
_P2P_MARK = re.compile(r"^nccl:(send|recv) (\d+)(->|<-)(\d+)")
_OP_WORDS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "sendrecv",
    "send",
    "recv",
    "reduce",
)
_DTYPE_BYTES = {"half": 2, "bfloat16": 2, "float": 4, "int": 4, "double": 8, "long": 8, "byte": 1, "char": 1, "bool": 1}


def fold(file: TraceFile, source: str) -> list[RankTrace]:
    """Split a decoded file by rank and fold each part. Parts without GPU operations are left out."""
    parts = _by_rank(file.events)
    ranks = [_fold_one(file, source, label, events, merged=len(parts) > 1) for label, events in parts]
    return [rank for rank in ranks if rank is not None]


def _by_rank(events: list[Event]) -> list[tuple[str | None, list[Event]]]:
    labelled: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        label = identity.pid_label(event.pid)
        if label is not None:
            labelled[label].append(event)
    if labelled:
        return [(label, labelled[label]) for label in sorted(labelled)]
    gpu_pids = {event.pid for event in events if event.cat == "kernel"}
    return _by_device(events, gpu_pids) if len(gpu_pids) > 1 else [(None, events)]


def _by_device(events: list[Event], gpu_pids: set[int | str | None]) -> list[tuple[str | None, list[Event]]]:
    """Split a merged file without labels: each GPU goes with the host process whose launches its kernels name."""
    launched: dict[Any, dict[Any, float]] = defaultdict(dict)
    for event in events:
        if event.cat in RUNTIME and event.args is not None and event.args.correlation is not None:
            launched[event.pid][event.args.correlation] = event.ts
    parts: list[tuple[str | None, list[Event]]] = []
    for number, gpu in enumerate(sorted(gpu_pids, key=str)):
        votes: dict[Any, int] = defaultdict(int)
        for event in events:
            if event.pid == gpu and event.cat == "kernel" and event.args is not None:
                for pid, calls in launched.items():
                    at = calls.get(event.args.correlation)
                    votes[pid] += at is not None and at <= event.ts
        host = max(votes, key=lambda pid: votes[pid], default=None)
        parts.append((f"R{number}", [event for event in events if event.pid in (gpu, host)]))
    return parts


def _fold_one(file: TraceFile, source: str, label: str | None, events: list[Event], merged: bool) -> RankTrace | None:
    gpu = [e for e in events if e.cat in GPU and e.ph == "X" and e.dur >= 0]
    if not gpu:
        return None
    gpu.sort(key=lambda e: e.ts)
    names: dict[str, int] = {}
    name_ids = np.array([names.setdefault(e.name, len(names)) for e in gpu], dtype=np.int32)
    kinds = np.array([classify.op_kind(name) for name in names], dtype=np.int8)
    experts = np.array([classify.is_expert(name) for name in names], dtype=np.bool_)
    start, end = _times(gpu)
    ops = GpuOps(
        start=start,
        end=end,
        stream=np.array([_whole(e.args.stream if e.args else None) for e in gpu], dtype=np.int64),
        correlation=np.array([_whole(e.args.correlation if e.args else None) for e in gpu], dtype=np.int64),
        kind=kinds[name_ids],
        expert=experts[name_ids],
        name=name_ids,
        names=list(names),
    )
    calls = [e for e in events if e.cat in RUNTIME and e.ph == "X"]
    calls.sort(key=lambda e: e.ts)
    launches = _launches([e for e in calls if classify.is_launch(e.name)])
    annotations = _annotations(events, "user_annotation")
    process_names = _process_names(events, {event.pid for event in gpu})
    where = identity.coordinates(label or "")
    for text in process_names:
        where = where.filled_from(identity.coordinates(text))
    if not merged:
        where = where.filled_from(identity.coordinates_of_file(source))
    info = file.info if not merged else None
    rank = info.rank if info is not None and info.rank is not None else _rank_from(where)
    device = next((_whole(e.args.device) for e in gpu if e.args is not None and e.args.device is not None), 0)
    return RankTrace(
        source=source,
        label=label or "",
        rank=rank,
        world=(file.info.world_size or 0) if file.info is not None else 0,
        stage=max(where.pp, 0),
        engine=identity.engine_of(process_names, (a.name for a in annotations)),
        device=file.devices[device].name if 0 <= device < len(file.devices) else "",
        with_stack=bool(file.with_stack),
        cut=file.cut,
        ops=ops,
        comm=_comm_ops(gpu, ops, launches, annotations),
        launches=launches,
        annotations=annotations,
        gpu_annotations=_annotations(events, "gpu_user_annotation"),
        host_busy=_host_busy(file, events, calls),
        host_blocked=_blocked(calls, annotations),
        profiler_overhead=_union_of(e for e in events if e.cat == "overhead" and e.ph == "X"),
    )


def _process_names(events: list[Event], gpu_pids: set[int | str | None]) -> list[str]:
    """Names of these events' processes, hosts first: every rank of a host names all of its GPUs."""
    named = [e for e in events if e.ph == "M" and e.name == "process_name" and e.args is not None]
    named.sort(key=lambda event: event.pid in gpu_pids)
    return [str(event.args.name) for event in named if event.args is not None]


def _rank_from(where: identity.Coordinates) -> int:
    if where.rank >= 0:
        return where.rank
    return next((number for number in (where.pp, where.ep, where.tp, where.dp) if number > 0), UNKNOWN)


def _launches(calls: list[Event]) -> Launches:
    start, end = _times(calls)
    return Launches(
        start=start,
        end=end,
        correlation=np.array([_whole(e.args.correlation if e.args else None) for e in calls], dtype=np.int64),
        graph=np.array([classify.is_graph_launch(e.name) for e in calls], dtype=np.bool_),
    )


def _annotations(events: list[Event], category: str) -> list[Annotation]:
    found = [
        Annotation(e.name, _ns(e.ts), _ns(e.ts) + _ns(e.dur), str(e.tid))
        for e in events
        if e.cat == category and e.ph == "X"
    ]
    return sorted(found, key=lambda a: (a.start, -a.end))


def _blocked(calls: list[Event], annotations: list[Annotation]) -> Intervals:
    waits = [(_ns(e.ts), _ns(e.ts) + _ns(e.dur)) for e in calls if classify.is_host_blocked(e.name)]
    waits += [(a.start, a.end) for a in annotations if _BLOCKING_MARKS.match(a.name) and ":send" not in a.name]
    array = np.array(waits, dtype=np.int64).reshape(-1, 2)
    return union(array[:, 0], array[:, 1])


def _comm_ops(gpu: list[Event], ops: GpuOps, launches: Launches, annotations: list[Annotation]) -> list[CommOp]:
    marks = [a for a in annotations if _P2P_MARK.match(a.name) or a.name.startswith("nccl:")]
    mark_starts = np.array([a.start for a in marks], dtype=np.int64)
    launched = dict(zip(launches.correlation.tolist(), launches.start.tolist(), strict=True))
    found: list[CommOp] = []
    for index in np.flatnonzero(ops.kind == classify.OpKind.COMM).tolist():
        args = gpu[index].args or Args()
        op = str(args.collective or "").lower().lstrip("_") or _op_from(gpu[index].name)
        src, dst = _whole(args.src), _whole(args.dst)
        if op in ("sendrecv", "") and marks:
            at = launched.get(int(ops.correlation[index]), int(ops.start[index]))
            mark = marks[max(0, int(np.searchsorted(mark_starts, at, side="right")) - 1)]
            if mark.start <= at <= mark.end:
                op, src, dst = _from_mark(mark.name)
        elements = max(_whole(args.in_elements), _whole(args.out_elements))
        size = _DTYPE_BYTES.get(str(args.dtype or "").lower(), 1 if "8" in str(args.dtype) else 2)
        found.append(
            CommOp(
                start=int(ops.start[index]),
                end=int(ops.end[index]),
                op=op or "comm",
                group=str(args.group_ranks or args.group or ""),
                elements=elements,
                bytes=elements * size if elements > 0 else max(_whole(args.bytes), 0),
                src=src,
                dst=dst,
            )
        )
    return found


def _from_mark(name: str) -> tuple[str, int, int]:
    if found := _P2P_MARK.match(name):
        peer = int(found[4])
        return (found[1], UNKNOWN, peer) if found[1] == "send" else (found[1], peer, UNKNOWN)
    return name.removeprefix("nccl:").lstrip("_"), UNKNOWN, UNKNOWN


def _op_from(kernel: str) -> str:
    text = re.sub(r"[^a-z]", "", kernel.lower())
    for word in _OP_WORDS:
        if word.replace("_", "") in text:
            return word
    return "all_reduce" if re.search(r"oneshot|twoshot|multimem|crossdevicereduce", text) else ""


def _times(events: list[Event]) -> tuple[Times, Times]:
    """Starts and ends in ns."""
    ts = np.array([e.ts for e in events], dtype=np.float64)
    return _scaled(ts, np.array([e.dur for e in events], dtype=np.float64))


def _scaled(ts: NDArray[np.float64], dur: NDArray[np.float64]) -> tuple[Times, Times]:
    """Microseconds as ns. Whole ones and the rest are scaled apart: ns since 1970 do not fit a double."""
    whole = np.floor(ts)
    start = whole.astype(np.int64) * 1000 + np.rint((ts - whole) * 1000.0).astype(np.int64)
    return start, start + np.rint(dur * 1000.0).astype(np.int64)


def _host_busy(file: TraceFile, events: list[Event], calls: list[Event]) -> Intervals:
    """When operators or runtime calls of these events' processes ran."""
    pids = {event.pid for event in events}
    own = [operators for pid, operators in file.operators.items() if pid in pids or len(file.operators) == 1]
    busy = [_union_of(calls), *(union(*_scaled(*_arrays(operators))) for operators in own)]
    return joined(*busy)


def _arrays(operators: Operators) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.frombuffer(operators.ts, dtype=np.float64), np.frombuffer(operators.dur, dtype=np.float64)


def _union_of(events: Iterable[Event]) -> Intervals:
    start, end = _times(list(events))
    return union(start, end)


def _ns(microseconds: float) -> int:
    whole = int(microseconds)
    return whole * 1000 + round((microseconds - whole) * 1000.0)


def _whole(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return UNKNOWN
