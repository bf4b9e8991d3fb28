"""Decoding a Kineto file into events: only the fields that are needed, typed, so that a huge file stays small.

A file is JSON or gzipped JSON, an object with `traceEvents` or a bare list of events. A file that was cut off is read
up to the cut.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from probes.traces import classify


class TraceError(ValueError):
    """A trace that cannot be used; the text is one line that names the file, what is wrong and the mend."""


class Args(
    msgspec.Struct,
    gc=False,
    rename={
        "collective": "Collective name",
        "in_elements": "In msg nelems",
        "out_elements": "Out msg nelems",
        "group_size": "Group size",
        "group": "Process Group Name",
        "group_ranks": "Process Group Ranks",
        "src": "Src Rank",
        "dst": "Dst Rank",
    },
):
    """The arguments of an event that the diagnosis reads; all may be missing."""

    stream: Any = None
    device: Any = None
    correlation: Any = None
    bytes: Any = None
    collective: Any = None
    in_elements: Any = None
    out_elements: Any = None
    group_size: Any = None
    dtype: Any = None
    group: Any = None
    group_ranks: Any = None
    src: Any = None
    dst: Any = None
    name: Any = None
    labels: Any = None


class Event(msgspec.Struct, gc=False):
    """One event. `ts` and `dur` are microseconds of the trace's clock."""

    name: str = ""
    ph: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    pid: int | str | None = None
    tid: int | str | None = None
    args: Args | None = None


class DistributedInfo(msgspec.Struct, gc=False):
    """What torch.distributed knew: this process's rank, how many there are."""

    rank: int | None = None
    world_size: int | None = None


class DeviceProperties(msgspec.Struct, gc=False):
    """One GPU of the host."""

    name: str = ""


class Operators(NamedTuple):
    """Host activity of one process that matters only as a whole: starts and lengths, microseconds."""

    ts: array[float]
    dur: array[float]


class TraceFile(msgspec.Struct):
    """A decoded file: its events, but operators only as host activity by process. `cut` tells that the file was cut
    off; `skipped` counts events that could not be read."""

    events: list[Event]
    operators: dict[int | str | None, Operators]
    info: DistributedInfo | None = None
    with_stack: int = 0
    devices: list[DeviceProperties] = []
    cut: bool = False
    skipped: int = 0


class _RawFile(msgspec.Struct, rename={"events": "traceEvents", "info": "distributedInfo"}):
    events: list[msgspec.Raw]
    info: DistributedInfo | None = None
    with_stack: int = 0
    devices: list[DeviceProperties] = msgspec.field(name="deviceProperties", default_factory=list)


class _DecodedFile(msgspec.Struct, gc=False, rename={"events": "traceEvents", "info": "distributedInfo"}):
    events: list[Event]
    info: DistributedInfo | None = None
    with_stack: int = 0
    devices: list[DeviceProperties] = msgspec.field(name="deviceProperties", default_factory=list)


class _BareFile(msgspec.Struct, rename={"events": "traceEvents"}):
    """The same, where what describes the file has an unknown shape."""

    events: list[msgspec.Raw]


_FILE = msgspec.json.Decoder(_RawFile, strict=False)
_SMALL = msgspec.json.Decoder(_DecodedFile, strict=False)
_BARE = msgspec.json.Decoder(_BareFile)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_EVENTS = msgspec.json.Decoder(list[Event], strict=False)
_EVENT = msgspec.json.Decoder(Event, strict=False)
_INFO = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)[^{}]*?"world_size"\s*:\s*(\d+)')
_FIRST = re.compile(rb"\S")
_SALVAGE_TRIES = 64
_CHUNK = 1 << 20
_EVENTS_AT_A_TIME = 16384
_AT_ONCE = 1 << 25
"""Files of at most this many bytes are decoded in one go."""

GPU = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
RUNTIME = frozenset(("cuda_runtime", "cuda_driver", "runtime", "hip_runtime"))
_KEPT = GPU | RUNTIME | {"user_annotation", "gpu_user_annotation", "overhead"}
_KNOWN = _KEPT | {"cpu_op"}


def read_file(path: Path) -> TraceFile:
    """Read one trace file; raise TraceError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror})") from None
    return decode(data, str(path))


def decode(data: bytes, name: str) -> TraceFile:
    """Decode a trace file's bytes, gzipped or not; `name` is for error messages. Raise TraceError."""
    data, cut = _inflate(data, name)
    first = _FIRST.search(data)
    if first is None:
        raise TraceError(f"{name}: empty; was the profiler stopped before it wrote the trace?")
    if first[0] not in (b"{", b"["):
        raise TraceError(f"{name}: not JSON; give a torch-profiler trace (.json or .json.gz)")
    if len(data) <= _AT_ONCE and first[0] == b"{":
        with contextlib.suppress(msgspec.DecodeError):
            small = _SMALL.decode(data)
            trace = _sorted_out([small.events], TraceFile([], {}, small.info, small.with_stack, small.devices))
            trace.cut = cut
            return trace
    try:
        raw = _raw(data)
    except msgspec.ValidationError:
        raise TraceError(f"{name}: JSON, but without a list of traceEvents; give a torch-profiler trace") from None
    except msgspec.DecodeError as error:
        salvaged = _salvage(data)
        if salvaged is None:
            raise TraceError(f"{name}: cut off or broken, no event can be read ({error}); record it anew") from None
        raw, cut = salvaged, True
    trace = TraceFile([], {}, raw.info, raw.with_stack, raw.devices, cut)
    return _sorted_out(_decoded(raw.events, trace), trace)


def _inflate(data: bytes, name: str) -> tuple[bytes, bool]:
    """Unzip if zipped; (bytes, whether the archive was cut off)."""
    if data[:2] != b"\x1f\x8b":
        return data, False
    parts: list[bytes] = []
    rest = data
    try:
        while rest:
            member = zlib.decompressobj(wbits=31)
            for start in range(0, len(rest), _CHUNK):
                parts.append(member.decompress(rest[start : start + _CHUNK]))
                if member.eof:
                    break
            if not member.eof:
                break
            rest = member.unused_data + rest[start + _CHUNK :]
        cut = bool(rest)
    except zlib.error:
        cut = True
    text = b"".join(parts)
    if cut and not text:
        raise TraceError(f"{name}: gzip archive is cut off or damaged; copy or record it anew")
    return text, cut


def _raw(data: bytes) -> _RawFile:
    """Find the events without decoding them."""
    if _is_list(data):
        return _RawFile(events=_LIST.decode(data))
    try:
        return _FILE.decode(data)
    except msgspec.ValidationError:
        return _RawFile(events=_BARE.decode(data).events)


def _is_list(data: bytes) -> bool:
    first = _FIRST.search(data)
    return first is not None and first[0] == b"["


def _sorted_out(batches: Iterable[list[Event]], trace: TraceFile) -> TraceFile:
    """Keep the events that are needed one by one, each name once; fold operators into host activity."""
    names: dict[str, str] = {}
    for batch in batches:
        for event in batch:
            if event.ph != "X" and event.ph != "M":
                continue
            category = event.cat
            if category not in _KNOWN:
                category = category.lower()
            if category == "cpu_op" or (category in RUNTIME and not classify.is_told_apart(event.name)):
                own = trace.operators.get(event.pid)
                if own is None:
                    own = trace.operators[event.pid] = Operators(array("d"), array("d"))
                own.ts.append(event.ts)
                own.dur.append(event.dur)
            elif category in _KEPT or event.ph == "M":
                event.cat = category
                event.name = names.setdefault(event.name, event.name)
                trace.events.append(event)
    return trace


def _decoded(raws: list[msgspec.Raw], trace: TraceFile) -> Iterator[list[Event]]:
    """Decode some thousand events at a time; those of another shape are left out and counted."""
    for start in range(0, len(raws), _EVENTS_AT_A_TIME):
        batch = raws[start : start + _EVENTS_AT_A_TIME]
        try:
            yield _EVENTS.decode(b"[" + b",".join(batch) + b"]")
        except msgspec.DecodeError:
            yield list(_one_by_one(batch, trace))


def _one_by_one(raws: list[msgspec.Raw], trace: TraceFile) -> Iterator[Event]:
    for raw in raws:
        try:
            yield _EVENT.decode(raw)
        except msgspec.DecodeError:
            trace.skipped += 1


def _salvage(data: bytes) -> _RawFile | None:
    """Read a cut file up to its last whole event; None when there is none."""
    tail = b"]" if _is_list(data) else b"]}"
    end = len(data)
    for _ in range(_SALVAGE_TRIES):
        end = data.rfind(b"}", 0, end)
        if end < 0:
            return None
        try:
            trace = _raw(data[: end + 1] + tail)
        except msgspec.DecodeError:
            continue
        if trace.info is None and (found := _INFO.search(data[:65536])):
            trace.info = DistributedInfo(int(found[1]), int(found[2]))
        return trace if trace.events else None
    return None
