"""Checks that a recording is whole: the database, every segment, every keyframe, the order of time."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from sessions.recording.reader import Recording
from sessions.recording.schema import open_for_reading


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. `problems` is empty for a whole recording; `messages` could be read."""

    path: str
    messages: int
    segments: int
    seconds: float
    problems: list[str]
    unknown_kinds: dict[str, int]


def verify(path: str | Path) -> Verdict:
    """Read everything once; raise RecordingError when the file cannot be opened at all."""
    path = Path(path)
    problems = _database_problems(path)
    with Recording(path) as recording:
        messages, last_ns = 0, None
        for record in recording.records():
            messages += 1
            if last_ns is not None and record.at_ns < last_ns:
                problems.append(f"time runs backwards after {last_ns} ns")
            last_ns = record.at_ns
        first_ns, end_ns = recording.extent()
        recording.check_keyframes()
        problems += recording.problems
        return Verdict(
            path=str(path),
            messages=messages,
            segments=recording.segment_count,
            seconds=(end_ns - first_ns) / 1e9,
            problems=problems,
            unknown_kinds=dict(recording.unknown_kinds),
        )


def _database_problems(path: Path) -> list[str]:
    database = open_for_reading(path)
    try:
        rows = database.execute("PRAGMA integrity_check(10)").fetchall()
    except sqlite3.DatabaseError as error:
        return [f"the database is damaged: {error}"]
    finally:
        database.close()
    return [" ".join(row[0].split())[:200] for row in rows if row[0] != "ok"]
