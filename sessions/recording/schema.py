"""The *.herd file: one SQLite database. How it is made, opened and recognised."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from urllib.parse import quote

from sessions.recording.errors import RecordingError

SUFFIX = ".herd"
APPLICATION_ID = 0x48455244  # "HERD"
FILE_SCHEMA = 1
BUSY_S = 2.0

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE sources (source TEXT PRIMARY KEY, host TEXT NOT NULL, t_ns INTEGER NOT NULL, wall_ns INTEGER NOT NULL);
CREATE TABLE tail (
    id INTEGER PRIMARY KEY, first_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL, count INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE TABLE segments (
    id INTEGER PRIMARY KEY, first_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL, count INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE INDEX segment_times ON segments (first_ns, last_ns, count);
CREATE TABLE keyframes (segment INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE markers (
    id INTEGER PRIMARY KEY, t_ns INTEGER NOT NULL, category TEXT NOT NULL, text TEXT NOT NULL, source TEXT NOT NULL
);
CREATE INDEX marker_times ON markers (t_ns);
CREATE TABLE rollups (
    t_ns INTEGER PRIMARY KEY, tokens_per_s REAL, watts REAL, waves REAL, herd_index REAL, running REAL, waiting REAL,
    occupancy REAL
);
"""
# tail      ticks not folded yet: MessagePack [[arrival, message bytes], ...]
# segments  folded ticks, see segment.py; ids grow with time
# keyframes the state before the first message of the segment with this id; one exists for the tail too


def create(path: str | Path) -> sqlite3.Connection:
    """Make a new recording, or one in memory for ":memory:"; raise RecordingError when the file exists."""
    if path != ":memory:":
        path = Path(path)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            raise RecordingError(
                f"{path} exists already (another recorder may be writing it): choose another name"
            ) from None
        except OSError as error:
            raise RecordingError(f"cannot write {path}: {error.strerror}") from None
    try:
        database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA page_size = 4096")
        database.execute("PRAGMA journal_mode = WAL")
        # A commit then survives the death of the process; a power cut may cost the last few commits, never the file.
        database.execute("PRAGMA synchronous = NORMAL")
        database.executescript(
            f"BEGIN; {_TABLES} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FILE_SCHEMA}; COMMIT;"
        )
    except sqlite3.Error as error:
        raise RecordingError(f"cannot write {path}: {error}") from None
    return database


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a recording that may still be written; raise RecordingError when it is none, or a newer one.

    A file in a folder that cannot be written, whose recorder died, is read from a private copy: SQLite needs to write
    beside the file to see its last commits.
    """
    if not path.is_file():
        raise RecordingError(f"{path} does not exist" if not path.exists() else f"{path} is no file")
    try:
        return _checked(_connect(f"file:{_quoted(path)}?mode=ro"), path)
    except sqlite3.OperationalError as error:
        if os.access(path.parent, os.W_OK):
            raise RecordingError(f"cannot read {path}: {error}") from None
    if _wal(path).exists():
        return _open_copy(path)
    try:
        return _checked(_connect(f"file:{_quoted(path)}?mode=ro&immutable=1"), path)
    except sqlite3.OperationalError as error:
        raise RecordingError(f"cannot read {path}: {error}") from None


def open_for_changes(path: Path) -> sqlite3.Connection:
    """Open a recording to annotate it; raise RecordingError when it is none, a newer one, or read-only."""
    open_for_reading(path).close()
    if not os.access(path, os.W_OK):
        raise RecordingError(f"{path} is read-only: copy it first")
    return _connect(f"file:{_quoted(path)}?mode=rw")


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)


def _checked(database: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    try:
        application, schema = _identity(database)
    except sqlite3.OperationalError as error:
        database.close()
        if "no such table" in str(error):
            raise RecordingError(f"{path} is no herdscope recording") from None
        raise
    except sqlite3.DatabaseError as error:
        database.close()
        raise RecordingError(f"{path} is no herdscope recording, or is damaged at its start ({error})") from None
    if application != APPLICATION_ID:
        database.close()
        raise RecordingError(f"{path} is no herdscope recording")
    if schema > FILE_SCHEMA:
        database.close()
        raise RecordingError(f"{path} has file schema {schema}, newer than {FILE_SCHEMA} known here: update herdscope")
    return database


def _identity(database: sqlite3.Connection) -> tuple[int, int]:
    def read() -> tuple[int, int]:
        application = database.execute("PRAGMA application_id").fetchone()[0]
        schema = database.execute("PRAGMA user_version").fetchone()[0]
        database.execute("SELECT count(*) FROM meta").fetchone()
        return application, schema

    try:
        return read()
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        # SQLite refuses a file that was cut short, unless told that it is being mended; then it reads what is there.
        database.execute("PRAGMA writable_schema = ON")
        return read()


def _open_copy(path: Path) -> sqlite3.Connection:
    folder = tempfile.mkdtemp(prefix="herdscope-")
    try:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        shutil.copyfile(_wal(path), _wal(copy))
        database = _connect(f"file:{_quoted(copy)}?mode=rw")
        return _checked(database, path)
    except (OSError, sqlite3.Error) as error:
        raise RecordingError(f"cannot read {path}: {error}") from None
    finally:
        # The open connection keeps the unlinked files readable.
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)


def _wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _quoted(path: Path) -> str:
    return quote(os.fspath(path.absolute()))
