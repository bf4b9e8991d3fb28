"""Spans of stage frames as columns, each instant told from the one before it: most of a recording is these."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sessions.messages import Span
from sessions.recording.columns import Column, pack_integers, pack_plain, unpack_column, unpack_integers, unpack_plain

_FIELDS = Span.__struct_fields__
_WIDTH = len(_FIELDS)
_INSTANTS = [_FIELDS.index(name) for name in ("wait", "ready", "start", "end", "sent")]
_GRAPH = _FIELDS.index("graph")
_SPANS = "s"


def pack_spans(lists: Sequence[Any], instants: Sequence[int]) -> Column | None:
    """Encode the span lists of frames with these `t_ns`; None when they are not plain spans of this version."""
    rows = [row for spans in lists for row in spans]
    if rows and (set(map(len, rows)) != {_WIDTH} or set(map(type, map(itemgetter(_GRAPH), rows))) != {bool}):
        return None
    try:
        table = np.array(rows, dtype=np.int64).reshape(len(rows), _WIDTH)
        frames = np.array(instants, dtype=np.int64)
    except (OverflowError, TypeError, ValueError):
        return None
    counts = np.array([len(spans) for spans in lists], dtype=np.int64)
    table[:, _INSTANTS] += np.repeat(frames, counts)[:, None]
    columns = []
    for index in range(_WIDTH):
        if index == _INSTANTS[0]:
            columns.append(pack_plain(table[:, index] - _previous_sent(table)))
        elif index in _INSTANTS:
            columns.append(pack_plain(table[:, index] - table[:, index - 1]))
        else:
            columns.append(pack_integers(table[:, index]))
    return [_SPANS, [len(rows), pack_integers(counts), columns]]


def unpack_spans(column: Column, instants: Sequence[int], rows: NDArray[np.bool_]) -> list[Any]:
    """Undo pack_spans (or a plain column) for the chosen frames: a list of spans for each. `instants` are the `t_ns` of
    those, `rows` says of every frame whether it is chosen. Raise DamagedColumn."""
    form, payload = column
    if form != _SPANS:
        return unpack_column(column, len(rows), rows)
    total, packed_counts, packed = payload
    counts = unpack_integers(packed_counts, len(rows))
    columns = [
        (unpack_plain if index in _INSTANTS else unpack_integers)(packed[index], total) for index in range(_WIDTH)
    ]
    # sent[n] = sent[n-1] + all five steps of span n, and from there back to each instant.
    sent = np.cumsum(sum(columns[index] for index in _INSTANTS))
    before = np.concatenate(([np.int64(0)], sent[:-1])) if total else sent
    for index in _INSTANTS:
        before = columns[index] = before + columns[index]
    chosen = np.repeat(rows, counts)
    counts = counts[rows]
    frames = np.repeat(np.array(instants, dtype=np.int64), counts)
    by_field: list[list[Any]] = []
    for index, values in enumerate(columns):
        kept = values[chosen]
        if index in _INSTANTS:
            kept -= frames
        by_field.append((kept.astype(bool) if index == _GRAPH else kept).tolist())
    spans = list(map(Span, *by_field))
    ends = np.cumsum(counts).tolist()
    return [spans[end - count : end] for end, count in zip(ends, counts.tolist(), strict=True)]


def _previous_sent(table: NDArray[np.int64]) -> NDArray[np.int64]:
    sent = table[:, _INSTANTS[-1]]
    return np.concatenate(([np.int64(0)], sent[:-1])) if len(sent) else sent
