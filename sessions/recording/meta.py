"""What a recording says about itself."""

from __future__ import annotations

import socket
import sqlite3
import sys
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from sessions.clock import wall_anchor
from sessions.knobs import Knobs
from sessions.messages import SCHEMA_VERSION, ModelInfo
from sessions.recording.redact import redact
from sessions.versions import installed


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Who recorded, where, with what. `wall_ns` is UTC (ns since 1970) at the recorder's monotonic instant `t_ns`."""

    t_ns: int
    wall_ns: int
    host: str
    command_line: list[str]
    versions: dict[str, str]
    message_schema: int = SCHEMA_VERSION
    part: int = 1
    """1 for a whole recording, 2, 3, ... for what a rotation went on with."""


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """What was served, as last seen."""

    model: ModelInfo | None = None
    stages: int = 0
    hardware: str = ""
    emulated: bool = False
    knobs: Knobs | None = None


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """What people wrote about it."""

    title: str = ""
    tags: list[str] = []
    notes: list[str] = []


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """Written when a recording is closed as it should be."""

    t_ns: int
    reason: str


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """Ids of the segments written so far; lets a damaged file be read segment by segment."""

    last_segment: int = 0


_T = TypeVar("_T", bound=msgspec.Struct)
_KEYS: dict[type[msgspec.Struct], str] = {
    Origin: "origin",
    Engine: "engine",
    Notes: "notes",
    Ending: "ending",
    Extent: "extent",
}


def origin(command_line: Sequence[str] | None = None) -> Origin:
    """This process as a recorder, now; secrets are taken out of the command line (default: this process's)."""
    t_ns, wall_ns = wall_anchor()
    return Origin(
        t_ns=t_ns,
        wall_ns=wall_ns,
        host=socket.gethostname(),
        command_line=redact(sys.argv if command_line is None else command_line),
        versions=installed("herdscope"),
    )


def store(database: sqlite3.Connection, value: msgspec.Struct) -> None:
    """Write one of the structs above (as JSON, so that any SQLite tool shows it)."""
    row = (_KEYS[type(value)], msgspec.json.encode(value))
    database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", row)


def load(database: sqlite3.Connection, kind: type[_T]) -> _T | None:
    """Read one back; None when it is not there. Raise msgspec.MsgspecError when it is damaged."""
    row = database.execute("SELECT value FROM meta WHERE key = ?", (_KEYS[kind],)).fetchone()
    return None if row is None else msgspec.json.decode(row[0], type=kind)
