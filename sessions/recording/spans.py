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


def unpack_spans(column: Column, instants: Sequence[int]) -> list[Any]:
    """Undo pack_spans (or a plain column): a list of spans for each frame; raise DamagedColumn."""
    form, payload = column
    if form != _SPANS:
        return unpack_column(column, len(instants))
    total, packed_counts, columns = payload
    counts = unpack_integers(packed_counts, len(instants))
    table = np.empty((total, _WIDTH), dtype=np.int64)
    for index in range(_WIDTH):
        if index in _INSTANTS:
            table[:, index] = unpack_plain(columns[index], total)
        else:
            table[:, index] = unpack_integers(columns[index], total)
    steps = table[:, _INSTANTS]
    # sent[n] = sent[n-1] + all five steps of span n, and from there back to each instant.
    sent = np.cumsum(steps.sum(axis=1))
    start = np.concatenate(([np.int64(0)], sent[:-1])) if total else sent
    table[:, _INSTANTS] = start[:, None] + np.cumsum(steps, axis=1)
    table[:, _INSTANTS] -= np.repeat(np.array(instants, dtype=np.int64), counts)[:, None]
    by_field: list[list[Any]] = table.T.tolist()
    by_field[_GRAPH] = table[:, _GRAPH].astype(bool).tolist()
    rows = list(map(Span, *by_field))
    ends = np.cumsum(counts).tolist()
    return [rows[end - count : end] for end, count in zip(ends, counts.tolist(), strict=True)]


def _previous_sent(table: NDArray[np.int64]) -> NDArray[np.int64]:
    sent = table[:, _INSTANTS[-1]]
    return np.concatenate(([np.int64(0)], sent[:-1])) if len(sent) else sent
