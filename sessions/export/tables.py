"""Flat tables of a recording: spans, queues, slots, GPUs, tokens, marks and seconds, as Parquet or CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from sessions.export.errors import ExportError, missing_library
from sessions.messages import GpuFrame, Message, QueueFrame, Span, StageFrame, TokenFrame
from sessions.recording.markers import Mark
from sessions.recording.reader import Recording
from sessions.recording.rollups import Rollup

Format = Literal["parquet", "csv"]
Row = tuple[Any, ...]
_BATCH = 50_000

_GPU_FIELDS = (
    "index", "uuid", "name", "power_watts", "power_limit_watts", "energy_joules_total", "memory_used_bytes",
    "memory_total_bytes", "utilization_ratio", "sm_clock_hertz", "memory_clock_hertz", "temperature_celsius",
    "pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second", "emulated",
)  # fmt: skip
_QUEUE_FIELDS = tuple(name for name in QueueFrame.__struct_fields__ if name not in ("source", "t_ns", "slots"))
_INSTANTS = ("wait", "ready", "start", "end", "sent")
_SPAN_FIELDS = tuple(name for name in Span.__struct_fields__ if name not in _INSTANTS)


class Table(msgspec.Struct, frozen=True):
    """A table's name, its columns, and its rows from a recording and an interval. All times are ns: `t_ns` on the
    recorder's clock where the source shares it, `utc_ns` since 1970."""

    name: str
    columns: tuple[str, ...]
    rows: Callable[[Recording, int | None, int | None], Iterator[Row]]


def _spans(recording: Recording, start: int | None, end: int | None) -> Iterator[Row]:
    for record in recording.records(start, end, [StageFrame]):
        frame = record.message
        assert isinstance(frame, StageFrame)
        for span in frame.spans:
            instants = [frame.t_ns + getattr(span, name) for name in _INSTANTS]
            rest = [getattr(span, name) for name in _SPAN_FIELDS]
            yield (frame.source, frame.stage, frame.rank, *rest, *instants, recording.utc_ns(instants[0]))


def _frames(kind: type[Message], fields: Sequence[str]) -> Callable[[Recording, int | None, int | None], Iterator[Row]]:
    def rows(recording: Recording, start: int | None, end: int | None) -> Iterator[Row]:
        for _, frame in recording.records(start, end, [kind]):
            values = [getattr(frame, name) for name in fields]
            yield (frame.source, frame.t_ns, recording.utc_ns(frame.t_ns), *values)

    return rows


def _slots(recording: Recording, start: int | None, end: int | None) -> Iterator[Row]:
    for record in recording.records(start, end, [QueueFrame]):
        frame = record.message
        assert isinstance(frame, QueueFrame)
        for number, slot in enumerate(frame.slots):
            utc = recording.utc_ns(frame.t_ns)
            yield (frame.source, frame.t_ns, utc, number, slot.decode, slot.prefill, slot.in_flight)


def _tokens(recording: Recording, start: int | None, end: int | None) -> Iterator[Row]:
    for record in recording.records(start, end, [TokenFrame]):
        frame = record.message
        assert isinstance(frame, TokenFrame)
        for event in frame.events:
            yield (frame.source, frame.t_ns, recording.utc_ns(frame.t_ns), event.request, len(event.tokens))


def _marks(recording: Recording, start: int | None, end: int | None) -> Iterator[Row]:
    for mark in recording.marks(start, end):
        yield (*msgspec.structs.astuple(mark), recording.utc_ns(mark.t_ns))


def _seconds(recording: Recording, start: int | None, end: int | None) -> Iterator[Row]:
    for rollup in recording.rollups(start, end):
        yield (*msgspec.structs.astuple(rollup), recording.utc_ns(rollup.t_ns))


_WHEN = ("source", "t_ns", "utc_ns")
TABLES = (
    Table(
        "spans",
        ("source", "stage", "rank", *_SPAN_FIELDS, *(f"{name}_ns" for name in _INSTANTS), "utc_ns"),
        _spans,
    ),
    Table("queues", (*_WHEN, *_QUEUE_FIELDS), _frames(QueueFrame, _QUEUE_FIELDS)),
    Table("slots", (*_WHEN, "slot", "decode", "prefill", "slot_in_flight"), _slots),
    Table("gpus", (*_WHEN, *_GPU_FIELDS), _frames(GpuFrame, _GPU_FIELDS)),
    Table("tokens", (*_WHEN, "request", "tokens"), _tokens),
    Table("marks", (*Mark.__struct_fields__, "utc_ns"), _marks),
    Table("seconds", (*Rollup.__struct_fields__, "utc_ns"), _seconds),
)


def write_tables(
    recording: Recording, folder: Path, form: Format, start_ns: int | None = None, end_ns: int | None = None
) -> dict[str, int]:
    """Write every table that has rows into `folder`; return rows by file name. Raise ExportError."""
    write = _write_parquet if form == "parquet" else _write_csv
    written: dict[str, int] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table in TABLES:
            path = folder / f"{table.name}.{form}"
            count = write(table, path, table.rows(recording, start_ns, end_ns))
            if count:
                written[path.name] = count
    except OSError as error:
        raise ExportError(f"cannot write {folder}: {error.strerror or error}") from None
    return written


def _write_csv(table: Table, path: Path, rows: Iterator[Row]) -> int:
    first = next(rows, None)
    if first is None:
        return 0
    count = 1
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        writer.writerow(first)
        for row in rows:
            writer.writerow(row)
            count += 1
    return count


def _write_parquet(table: Table, path: Path, rows: Iterator[Row]) -> int:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise missing_library("pyarrow") from None
    batch = _batch(rows)
    if not batch:
        return 0
    count = 0
    schema = pa.schema([(name, _arrow_type(pa, name)) for name in table.columns])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while batch:
            columns = dict(zip(table.columns, map(list, zip(*batch, strict=True)), strict=True))
            writer.write_table(pa.table(columns, schema=schema))
            count += len(batch)
            batch = _batch(rows)
    return count


def _batch(rows: Iterator[Row]) -> list[Row]:
    return [row for row, _ in zip(rows, range(_BATCH), strict=False)]


_TEXT = {"source", "uuid", "name", "category", "text", "request"}
_SWITCHES = {"graph", "slot_in_flight", "emulated"}


def _arrow_type(pa: Any, name: str) -> Any:
    if name in _TEXT:
        return pa.string()
    if name in _SWITCHES:
        return pa.bool_()
    return pa.float64() if _is_float(name) else pa.int64()


def _is_float(name: str) -> bool:
    types = {
        field.name: field.type for kind in (GpuFrame, QueueFrame, Rollup) for field in msgspec.structs.fields(kind)
    }
    return types.get(name) in (float, float | None)
