"""Decoding a Kineto file into events: only the fields that are needed, typed, so that a huge file stays small.

A file is JSON or gzipped JSON, an object with `traceEvents` or a bare list of events. A file that was cut off is read
up to the cut.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import msgspec


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


class TraceFile(msgspec.Struct, gc=False, rename={"events": "traceEvents", "info": "distributedInfo"}):
    """A decoded file. `cut` tells that it was cut off; `skipped` counts events that could not be read."""

    events: list[Event]
    info: DistributedInfo | None = None
    with_stack: int = 0
    devices: list[DeviceProperties] = msgspec.field(name="deviceProperties", default_factory=list)
    cut: bool = False
    skipped: int = 0


class _RawFile(msgspec.Struct, rename={"events": "traceEvents"}):
    events: list[msgspec.Raw]
    info: Any = msgspec.field(name="distributedInfo", default=None)


_FILE = msgspec.json.Decoder(TraceFile, strict=False)
_LIST = msgspec.json.Decoder(list[Event], strict=False)
_RAW_FILE = msgspec.json.Decoder(_RawFile)
_RAW_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_EVENT = msgspec.json.Decoder(Event, strict=False)
_INFO = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)[^{}]*?"world_size"\s*:\s*(\d+)')
_SALVAGE_TRIES = 64
_CHUNK = 1 << 20


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
    if not data.strip():
        raise TraceError(f"{name}: empty; was the profiler stopped before it wrote the trace?")
    if data.lstrip()[:1] not in (b"{", b"["):
        raise TraceError(f"{name}: not JSON; give a torch-profiler trace (.json or .json.gz)")
    try:
        trace = _whole(data)
    except msgspec.ValidationError:
        trace = _tolerant(data, name)
    except msgspec.DecodeError as error:
        salvaged = _salvage(data)
        if salvaged is None:
            raise TraceError(
                f"{name}: cut off or broken JSON, no event can be read ({error}); record it anew"
            ) from None
        trace, cut = salvaged, True
    trace.cut = cut
    return trace


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


def _whole(data: bytes) -> TraceFile:
    if data.lstrip()[:1] == b"[":
        return TraceFile(events=_LIST.decode(data))
    return _FILE.decode(data)


def _tolerant(data: bytes, name: str) -> TraceFile:
    """Read event by event and leave out those of another shape."""
    try:
        if data.lstrip()[:1] == b"[":
            raws, info = _RAW_LIST.decode(data), None
        else:
            whole = _RAW_FILE.decode(data)
            raws, info = whole.events, whole.info
    except msgspec.ValidationError:
        raise TraceError(f"{name}: JSON, but without a list of traceEvents; give a torch-profiler trace") from None
    events: list[Event] = []
    skipped = 0
    for raw in raws:
        try:
            events.append(_EVENT.decode(raw))
        except msgspec.DecodeError:
            skipped += 1
    known = info if isinstance(info, dict) else {}
    rank, world = known.get("rank"), known.get("world_size")
    return TraceFile(
        events=events,
        info=DistributedInfo(rank if isinstance(rank, int) else None, world if isinstance(world, int) else None),
        skipped=skipped,
    )


def _salvage(data: bytes) -> TraceFile | None:
    """Read a cut file up to its last whole event; None when there is none."""
    tail = b"]" if data.lstrip()[:1] == b"[" else b"]}"
    end = len(data)
    for _ in range(_SALVAGE_TRIES):
        end = data.rfind(b"}", 0, end)
        if end < 0:
            return None
        try:
            trace = _whole(data[: end + 1] + tail)
        except msgspec.DecodeError:
            continue
        if trace.info is None and (found := _INFO.search(data[:65536])):
            trace.info = DistributedInfo(int(found[1]), int(found[2]))
        return trace if trace.events else None
    return None
