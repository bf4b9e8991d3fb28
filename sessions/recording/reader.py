"""Reads a *.herd file, also while it is being written."""

from __future__ import annotations

import bisect
import contextlib
import sqlite3
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from sessions.codec import MalformedMessage, UnknownKind, decode
from sessions.messages import Message, kind_of
from sessions.recording import meta
from sessions.recording.errors import RecordingError
from sessions.recording.markers import Mark
from sessions.recording.rollups import Rollup
from sessions.recording.schema import open_for_reading
from sessions.recording.segment import DamagedSegment, Recorded, unfold
from sessions.recording.state import unpack_keyframe
from sessions.recording.writer import unpack_tick

_CACHED_SEGMENTS = 12
"""As many as hold the half minute of frames that a viewer is given after a jump, so that the next jump reads few."""


class Moment(NamedTuple):
    """All that a viewer needs at an instant: `state`, then `records` in order, none of them older than it needs."""

    state: list[Message]
    records: list[Recorded]


class _Place(NamedTuple):
    """A segment and the arrivals of its first and last message."""

    id: int
    first_ns: int
    last_ns: int


class Recording:
    """An open recording. One thread uses it.

    Times are the recorder's monotonic clock; `utc_ns` turns them into UTC. What is damaged is left out and named in
    `problems`; kinds of a later version are counted in `unknown_kinds`.
    """

    def __init__(self, path: str | Path) -> None:
        """Open for reading; raise RecordingError."""
        self.path = Path(path)
        self._database = open_for_reading(self.path)
        self.problems: list[str] = []
        self.unknown_kinds: Counter[str] = Counter()
        self._cache: OrderedDict[int, list[Recorded]] = OrderedDict()
        self._places: list[_Place] = []
        with self._reading():
            origin = meta.load(self._database, meta.Origin)
            extent = meta.load(self._database, meta.Extent)
            if origin is None or extent is None:
                raise RecordingError(f"{self.path} is no finished recording: it has no origin")
            self.origin = origin
            self._refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the file."""
        self._database.close()

    @property
    def engine(self) -> meta.Engine:
        """What was served, as last seen."""
        with self._reading():
            return meta.load(self._database, meta.Engine) or meta.Engine()

    @property
    def notes(self) -> meta.Notes:
        """What people wrote about it."""
        with self._reading():
            return meta.load(self._database, meta.Notes) or meta.Notes()

    @property
    def ending(self) -> meta.Ending | None:
        """How it ended; None while it is being written, and after its recorder was killed."""
        with self._reading():
            return meta.load(self._database, meta.Ending)

    def utc_ns(self, t_ns: int) -> int:
        """UTC (ns since 1970) at an instant of the recorder's clock."""
        return t_ns - self.origin.t_ns + self.origin.wall_ns

    def extent(self) -> tuple[int, int]:
        """Arrivals of the first and the last message so far; equal to the origin's when there is none."""
        with self._snapshot():
            first, last = self.origin.t_ns, self.origin.t_ns
            if self._places:
                first, last = self._places[0].first_ns, self._places[-1].last_ns
            row = self._database.execute("SELECT min(first_ns), max(last_ns) FROM tail").fetchone()
            if row[0] is not None:
                first, last = (first if self._places else row[0]), row[1]
            return first, last

    def count(self) -> int:
        """Messages so far."""
        with self._snapshot():
            query = "SELECT (SELECT total(count) FROM segments) + (SELECT total(count) FROM tail)"
            return int(self._database.execute(query).fetchone()[0])

    def sources(self) -> dict[str, tuple[str, int, int]]:
        """Each source's host, and its clock: UTC ns at a monotonic ns, as (host, t_ns, wall_ns)."""
        with self._reading():
            rows = self._database.execute("SELECT source, host, t_ns, wall_ns FROM sources").fetchall()
        return {source: (host, t_ns, wall_ns) for source, host, t_ns, wall_ns in rows}

    def seek(self, t_ns: int) -> Moment:
        """The state to begin with and the records from there up to and including `t_ns`."""
        with self._snapshot():
            ticks = self._tail(t_ns)
            if ticks:
                segment = self._places[-1].id + 1 if self._places else self._first_keyframe()
                return Moment(self._keyframe(segment), ticks)
            index = bisect.bisect_right(self._places, t_ns, key=lambda place: place.first_ns) - 1
            if index < 0:
                return Moment(self._keyframe(self._first_keyframe()), [])
            segment = self._places[index].id
            return Moment(self._keyframe(segment), self._beginning(segment, t_ns))

    def records(
        self, start_ns: int | None = None, end_ns: int | None = None, kinds: Sequence[type[Message]] | None = None
    ) -> Iterator[Recorded]:
        """Records with start_ns <= arrival <= end_ns (default: all) of these kinds (default: all), in order."""
        low = start_ns if start_ns is not None else -(2**63)
        high = end_ns if end_ns is not None else 2**63 - 1
        names = None if kinds is None else frozenset(map(kind_of, kinds))
        done = -1
        while True:
            with self._snapshot():
                index = bisect.bisect_right(self._places, done, key=lambda place: place.id)
                while index < len(self._places) and self._places[index].last_ns < low:
                    index += 1
                if index == len(self._places):
                    rest = self._tail(high, low)
                    break
                place = self._places[index]
                batch = self._segment(place.id, names) if place.first_ns <= high else []
            done = place.id
            yield from _between(batch, low, high, names)
        yield from _between(rest, low, high, names)

    def marks(self, start_ns: int | None = None, end_ns: int | None = None) -> list[Mark]:
        """Points of interest in an interval (default: all), in order."""
        return [
            Mark(*row) for row in self._rows("markers", "t_ns, category, text, source", start_ns, end_ns, "t_ns, id")
        ]

    def rollups(self, start_ns: int | None = None, end_ns: int | None = None) -> list[Rollup]:
        """Finished seconds in an interval (default: all), in order."""
        columns = ", ".join(Rollup.__struct_fields__)
        return [Rollup(*row) for row in self._rows("rollups", columns, start_ns, end_ns, "t_ns")]

    @property
    def segment_count(self) -> int:
        """Folded segments that can be found."""
        return len(self._places)

    def check_keyframes(self) -> None:
        """Read every keyframe, so that `problems` names the damaged ones."""
        with self._snapshot():
            for place in self._places:
                self._keyframe(place.id)

    # --- below, inside one read transaction ---

    def _rows(self, table: str, columns: str, start_ns: int | None, end_ns: int | None, order: str) -> list[tuple]:  # type: ignore[type-arg]
        bounds = (-(2**63) if start_ns is None else start_ns, 2**63 - 1 if end_ns is None else end_ns)
        with self._reading():
            query = f"SELECT {columns} FROM {table} WHERE t_ns BETWEEN ? AND ? ORDER BY {order}"
            return self._database.execute(query, bounds).fetchall()

    def _refresh(self) -> None:
        """Learn about segments folded since."""
        last = self._places[-1].id if self._places else -1
        try:
            query = "SELECT id, first_ns, last_ns FROM segments WHERE id > ? ORDER BY first_ns, id"
            if last < 0:
                query = (
                    "SELECT id, first_ns, last_ns FROM segments INDEXED BY segment_times WHERE id > ? ORDER BY first_ns"
                )
            self._places += sorted(_Place(*row) for row in self._database.execute(query, (last,)))
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            self._places = list(self._places_one_by_one())

    def _places_one_by_one(self) -> Iterator[_Place]:
        extent = meta.load(self._database, meta.Extent) or meta.Extent()
        for number in range(1, extent.last_segment + 1):
            with contextlib.suppress(sqlite3.DatabaseError):
                query = "SELECT id, first_ns, last_ns FROM segments WHERE id = ?"
                row = self._database.execute(query, (number,)).fetchone()
                if row is not None:
                    yield _Place(*row)
                continue
            self._problem(f"segment {number} is lost: the file is damaged there")

    def _segment(self, number: int, names: frozenset[str] | None = None) -> list[Recorded]:
        """A segment's records, of these kinds at least. Whole segments are kept: whoever plays reads them often."""
        if number in self._cache:
            self._cache.move_to_end(number)
            return self._cache[number]
        records = self._unfolded(number, names)
        if names is None:
            self._cache[number] = records
            if len(self._cache) > _CACHED_SEGMENTS:
                self._cache.popitem(last=False)
        return records

    def _beginning(self, number: int, until_ns: int) -> list[Recorded]:
        """A segment's records up to an instant; the rest is not decoded."""
        if number in self._cache:
            return _until(self._cache[number], until_ns)
        return self._unfolded(number, None, until_ns)

    def _unfolded(self, number: int, names: frozenset[str] | None, until_ns: int | None = None) -> list[Recorded]:
        try:
            row = self._database.execute("SELECT data FROM segments WHERE id = ?", (number,)).fetchone()
            if row is None:
                return []
            records, unknown = unfold(row[0], names, until_ns)
            self.unknown_kinds.update(unknown)
            return records
        except DamagedSegment as error:
            self._problem(f"segment {number} is damaged and left out: {error}")
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            self._problem(f"segment {number} is damaged and left out: {error}")
        return []

    def _tail(self, until_ns: int, from_ns: int = -(2**63)) -> list[Recorded]:
        query = "SELECT data FROM tail WHERE first_ns <= ? AND last_ns >= ? ORDER BY id"
        records: list[Recorded] = []
        try:
            for (data,) in self._database.execute(query, (until_ns, from_ns)):
                for at_ns, raw in unpack_tick(data):
                    message = decode(raw)
                    if not isinstance(message, UnknownKind):
                        records.append(Recorded(at_ns, message))
        except (msgspec.MsgspecError, MalformedMessage) as error:
            self._problem(f"the last seconds are damaged and left out: {error}")
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            self._problem(f"the last seconds are damaged and left out: {error}")
        return _until(records, until_ns)

    def _keyframe(self, segment: int) -> list[Message]:
        try:
            row = self._database.execute("SELECT data FROM keyframes WHERE segment = ?", (segment,)).fetchone()
            return unpack_keyframe(row[0]) if row is not None else []
        except (ValueError, sqlite3.DatabaseError) as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            self._problem(f"the keyframe of segment {segment} is damaged: {error}")
            return []

    def _first_keyframe(self) -> int:
        row = self._database.execute("SELECT min(segment) FROM keyframes").fetchone()
        return int(row[0] or 1)

    def _problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[None]:
        """One consistent view of segments and tail, though the recorder folds meanwhile."""
        with self._reading():
            self._database.execute("BEGIN")
            try:
                self._refresh()
                yield
            finally:
                with contextlib.suppress(sqlite3.DatabaseError):
                    self._database.execute("ROLLBACK")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            raise RecordingError(f"cannot read {self.path}: {error}") from None


def _until(records: list[Recorded], t_ns: int) -> list[Recorded]:
    return records[: bisect.bisect_right(records, t_ns, key=_arrival)]


def _between(records: list[Recorded], low: int, high: int, names: frozenset[str] | None) -> list[Recorded]:
    first = bisect.bisect_left(records, low, key=_arrival)
    last = bisect.bisect_right(records, high, key=_arrival)
    chosen = records[first:last]
    return chosen if names is None else [record for record in chosen if kind_of(record.message) in names]


def _arrival(record: Recorded) -> int:
    return record.at_ns
