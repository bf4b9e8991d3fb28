"""A few seconds of the message stream as one compressed block, and back.

Messages of one kind are laid out as columns (see columns.py, spans.py), those of one source (and rank, or GPU index)
next to each other; a list of streams restores the order of arrival.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray

from sessions.messages import KINDS, Message, StageFrame, kind_of
from sessions.recording.columns import (
    DamagedColumn,
    pack_column,
    pack_integers,
    unpack_column,
    unpack_integers,
)
from sessions.recording.spans import pack_spans, unpack_spans
from sessions.recording.zstd import PerThread

SEGMENT_FORMAT = 1
MAX_SEGMENT_BYTES = 256 * 1024 * 1024
_LEVEL = 6
_STAGE_FRAME = kind_of(StageFrame)

_decode = msgspec.msgpack.Decoder().decode
_encode = msgspec.msgpack.Encoder().encode
_zstd = PerThread(level=_LEVEL, checksum=True)


class Recorded(NamedTuple):
    """A message and when it arrived (ns, the recorder's monotonic clock)."""

    at_ns: int
    message: Message


class Unfolded(NamedTuple):
    """A segment's records in order of arrival, and how many messages of kinds unknown here were left out."""

    records: list[Recorded]
    unknown: dict[str, int]


class DamagedSegment(ValueError):
    """A segment that cannot be read; the text is one line."""


class _Group(msgspec.Struct, array_like=True):
    """All messages of one kind with the same fields: `streams` in order, their rows one after another."""

    kind: str
    names: list[str]
    streams: list[int]
    count: int
    columns: list[list[Any]]


class _Segment(msgspec.Struct, array_like=True):
    format: int
    count: int
    arrivals: list[Any]
    streams: list[Any]
    groups: list[_Group]


_segments = msgspec.msgpack.Decoder(_Segment)


def fold(records: Sequence[tuple[int, bytes]]) -> bytes:
    """Encode (arrival, MessagePack) pairs in order of arrival."""
    streams: dict[tuple[Any, ...], int] = {}
    order: list[int] = []
    rows: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    groups: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for _, data in records:
        fields = _decode(data)
        layout = tuple(fields)
        key = (layout, fields["kind"], fields["source"], fields.get("rank"), fields.get("index"))
        stream = streams.setdefault(key, len(streams))
        if stream not in rows:
            groups[(fields["kind"], *layout)].append(stream)
        rows[stream].append(fields)
        order.append(stream)
    packed = _Segment(
        SEGMENT_FORMAT,
        len(records),
        pack_integers(np.array([at for at, _ in records], dtype=np.int64)),
        pack_integers(np.array(order, dtype=np.int64)),
        [_pack_group(names[0], names[1:], members, rows) for names, members in groups.items()],
    )
    return _zstd.compress(_encode(packed))


def unfold(data: bytes, kinds: frozenset[str] | None = None, until_ns: int | None = None) -> Unfolded:
    """Decode a segment, or only these kinds of it, or only what had arrived at an instant; raise DamagedSegment."""
    try:
        return _unfold(data, kinds, until_ns)
    except (zstandard.ZstdError, msgspec.MsgspecError, DamagedColumn, ValueError, TypeError, IndexError) as error:
        raise DamagedSegment(" ".join(str(error).split())[:200]) from None


def _pack_group(kind: str, names: Sequence[str], members: list[int], rows: dict[int, list[dict[str, Any]]]) -> _Group:
    together = [fields for stream in members for fields in rows[stream]]
    columns = []
    for name in names:
        values = [fields[name] for fields in together]
        column = None
        if kind == _STAGE_FRAME and name == "spans":
            column = pack_spans(values, [fields["t_ns"] for fields in together])
        columns.append(pack_column(values) if column is None else column)
    return _Group(kind, list(names), members, len(together), columns)


def _unfold(data: bytes, kinds: frozenset[str] | None, until_ns: int | None) -> Unfolded:
    raw = _zstd.decompress(data, MAX_SEGMENT_BYTES)
    segment = _segments.decode(raw)
    if segment.format > SEGMENT_FORMAT:
        raise DamagedSegment(f"segment format {segment.format} is newer than {SEGMENT_FORMAT}: update herdscope")
    order = unpack_integers(segment.streams, segment.count)
    arrivals = unpack_integers(segment.arrivals, segment.count)
    sizes = np.bincount(order, minlength=1)
    if until_ns is not None:
        arrived = int(np.searchsorted(arrivals, until_ns, side="right"))
        order, arrivals = order[:arrived], arrivals[:arrived]
    wanted = np.bincount(order, minlength=len(sizes))
    streams: dict[int, Iterator[Message]] = {}
    unknown: dict[str, int] = {}
    for group in segment.groups:
        kind = KINDS.get(group.kind)
        if kind is None:
            unknown[group.kind] = unknown.get(group.kind, 0) + int(wanted[group.streams].sum())
        elif kinds is None or group.kind in kinds:
            messages = iter(_messages(group, kind, _beginnings(sizes[group.streams], wanted[group.streams])))
            for stream in group.streams:
                streams[stream] = iter(list(islice(messages, int(wanted[stream]))))
    places = zip(arrivals.tolist(), order.tolist(), strict=True)
    if len(streams) < len(sizes):
        places = ((at, stream) for at, stream in places if stream in streams)  # type: ignore[assignment]
    return Unfolded([Recorded(at, next(streams[stream])) for at, stream in places], unknown)


def _beginnings(sizes: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Of streams of `sizes` rows, one after another: which rows are among the first `wanted` of their stream."""
    place_in_stream = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen: NDArray[np.bool_] = place_in_stream < np.repeat(wanted, sizes)
    return chosen


def _messages(group: _Group, kind: type[Message], rows: NDArray[np.bool_]) -> Iterable[Message]:
    """The chosen rows of a group."""
    if len(rows) != group.count:
        raise DamagedSegment(f"{len(rows)} messages of kind {group.kind} where {group.count} should be")
    columns = dict(zip(group.names, group.columns, strict=True))
    values: dict[str, list[Any]] = {}
    for name in columns:
        if name in ("kind", "spans"):
            continue
        values[name] = unpack_column(columns[name], group.count, rows)
    values["kind"] = [group.kind] * int(rows.sum())
    if "spans" in columns:
        values["spans"] = unpack_spans(columns["spans"], values["t_ns"], rows)
    # One mapping at a time: thousands alive at once would set the garbage collector off.
    return [msgspec.convert(dict(zip(values, row, strict=True)), kind) for row in zip(*values.values(), strict=True)]
