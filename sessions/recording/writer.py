"""Writes one *.herd file: ticks into the tail, every few seconds the tail into a segment."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from sessions.codec import encode
from sessions.messages import EngineState, Hello, KnobState, Message, SessionHeader
from sessions.recording import meta
from sessions.recording.errors import RecordingError
from sessions.recording.markers import Mark, mark_of
from sessions.recording.rollups import Rollup, RollupBuilder
from sessions.recording.schema import create
from sessions.recording.segment import fold
from sessions.recording.state import SessionState, pack_keyframe

FOLD_NS = 4_000_000_000
FOLD_BYTES = 1024 * 1024
FOLD_MESSAGES = 20_000


class RecordingWriter:
    """One thread writes. `write` gathers, `commit` makes it durable; either raises RecordingError, after which only
    `abandon` may be called and the file holds everything committed before.

    `state` is what was known before the first message (a rotated file goes on where the last one ended).
    """

    def __init__(self, path: str | Path, origin: meta.Origin, state: Iterable[Message] = ()) -> None:
        self.path = path
        self._database = create(path)
        self._state = SessionState(state)
        self._rollups = RollupBuilder()
        self._engine = meta.Engine()
        self._last_ns = 0
        self._segment = 1
        self._pending: list[tuple[int, bytes]] = []
        self._tail: list[tuple[int, bytes]] = []
        self._tail_bytes = 0
        self._marks: list[Mark] = []
        self._finished_seconds: list[Rollup] = []
        self._new_sources: list[SessionHeader | Hello] = []
        self._engine_changed = False
        for message in self._state.messages():
            self._notice(message)
        with self._transaction():
            meta.store(self._database, origin)
            meta.store(self._database, meta.Extent())
            self._store_keyframe()
            self._store_notices()

    @property
    def state(self) -> list[Message]:
        """What is known now: the keyframe that would open a next file."""
        return self._state.messages()

    def write(self, at_ns: int, message: Message) -> None:
        """Add a message that arrived at `at_ns` (ns, the recorder's clock; never before the last one's)."""
        self._last_ns = at_ns = max(at_ns, self._last_ns)
        data = encode(message)
        self._pending.append((at_ns, data))
        self._tail_bytes += len(data)
        self._state.update(message)
        self._finished_seconds.extend(self._rollups.feed(at_ns, message))
        mark = mark_of(at_ns, message)
        if mark is not None:
            self._marks.append(mark)
        self._notice(message)

    def commit(self) -> None:
        """Make everything written so far durable; fold the tail when it is long enough."""
        if not self._pending:
            return
        self._tail += self._pending
        long_enough = (
            self._last_ns - self._tail[0][0] >= FOLD_NS
            or self._tail_bytes >= FOLD_BYTES
            or len(self._tail) >= FOLD_MESSAGES
        )
        with self._transaction():
            if long_enough:
                self._fold()
            else:
                row = (self._pending[0][0], self._pending[-1][0], len(self._pending), _pack_tick(self._pending))
                self._database.execute("INSERT INTO tail (first_ns, last_ns, count, data) VALUES (?, ?, ?, ?)", row)
            self._store_notices()
        self._pending = []

    def prune(self, before_ns: int) -> None:
        """Forget what ended before `before_ns`; the keyframes left keep the rest complete."""
        with self._transaction():
            row = self._database.execute("SELECT min(id) FROM segments WHERE last_ns >= ?", (before_ns,)).fetchone()
            first = self._segment if row[0] is None else row[0]
            self._database.execute("DELETE FROM segments WHERE id < ?", (first,))
            self._database.execute("DELETE FROM keyframes WHERE segment < ?", (first,))
            self._database.execute("DELETE FROM markers WHERE t_ns < ?", (before_ns,))
            self._database.execute("DELETE FROM rollups WHERE t_ns < ?", (before_ns,))

    def copy_to(self, path: Path, ending: meta.Ending) -> None:
        """Write all that is committed into a new file; raise RecordingError."""
        target = create(path)
        try:
            self._database.backup(target)
            meta.store(target, ending)
            target.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            raise RecordingError(f"cannot write {path}: {error}") from None
        finally:
            target.close()

    def size_bytes(self) -> int:
        """How much the file holds."""
        pages: int = self._database.execute("PRAGMA page_count").fetchone()[0]
        page: int = self._database.execute("PRAGMA page_size").fetchone()[0]
        return pages * page

    def close(self, reason: str) -> None:
        """Fold what is left and finish the file, as far as it can still be written. Never raises."""
        with contextlib.suppress(RecordingError, sqlite3.Error):
            self._tail += self._pending
            self._pending = []
            self._finished_seconds.extend(self._rollups.finish())
            with self._transaction():
                if self._tail:
                    self._fold()
                self._store_notices()
                meta.store(self._database, meta.Ending(t_ns=self._last_ns, reason=reason))
        # Without a write-ahead log the finished file can be read from a folder that nobody can write to.
        with contextlib.suppress(sqlite3.Error):
            self._database.execute("PRAGMA busy_timeout = 200")
            self._database.execute("PRAGMA journal_mode = DELETE")
        with contextlib.suppress(sqlite3.Error):
            self._database.close()

    def abandon(self) -> None:
        """Release the file as it was committed last. Never raises."""
        with contextlib.suppress(sqlite3.Error):
            self._database.close()

    def _notice(self, message: Message) -> None:
        if isinstance(message, SessionHeader | Hello):
            self._new_sources.append(message)
        elif isinstance(message, EngineState) and message.model is not None:
            self._engine = msgspec.structs.replace(
                self._engine,
                model=message.model,
                stages=message.stages,
                hardware=message.hardware,
                emulated=message.emulated,
            )
            self._engine_changed = True
        elif isinstance(message, KnobState):
            self._engine = msgspec.structs.replace(self._engine, knobs=message.knobs)
            self._engine_changed = True

    def _fold(self) -> None:
        first, last, count = self._tail[0][0], self._tail[-1][0], len(self._tail)
        row = (self._segment, first, last, count, fold(self._tail))
        self._database.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?)", row)
        self._database.execute("DELETE FROM tail")
        meta.store(self._database, meta.Extent(last_segment=self._segment))
        self._segment += 1
        self._store_keyframe()
        self._tail = []
        self._tail_bytes = 0

    def _store_keyframe(self) -> None:
        row = (self._segment, pack_keyframe(self._state.messages()))
        self._database.execute("INSERT INTO keyframes VALUES (?, ?)", row)

    def _store_notices(self) -> None:
        self._database.executemany(
            "INSERT INTO markers (t_ns, category, text, source) VALUES (?, ?, ?, ?)",
            [(mark.t_ns, mark.category, mark.text, mark.source) for mark in self._marks],
        )
        self._database.executemany(
            "INSERT OR REPLACE INTO rollups VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [msgspec.structs.astuple(rollup) for rollup in self._finished_seconds],
        )
        self._database.executemany(
            "INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?)",
            [(source.source, source.host, source.t_ns, source.wall_ns) for source in self._new_sources],
        )
        if self._engine_changed:
            meta.store(self._database, self._engine)
        self._marks, self._finished_seconds, self._new_sources = [], [], []
        self._engine_changed = False

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._database.execute("BEGIN IMMEDIATE")
            yield
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            raise RecordingError(f"cannot write {self.path}: {error}") from None


def _pack_tick(records: Sequence[tuple[int, bytes]]) -> bytes:
    return msgspec.msgpack.encode(records)


def unpack_tick(data: bytes) -> list[tuple[int, bytes]]:
    """The (arrival, message bytes) pairs of one tail row; raise msgspec.MsgspecError when it is damaged."""
    return msgspec.msgpack.decode(data, type=list[tuple[int, bytes]])
