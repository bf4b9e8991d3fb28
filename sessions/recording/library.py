"""Recordings of a folder: list, describe, annotate, tag, prune."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import platformdirs

from sessions.knobs import Knobs
from sessions.recording import meta
from sessions.recording.errors import RecordingError
from sessions.recording.reader import Recording
from sessions.recording.schema import SUFFIX, open_for_changes


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One recording in a list. `state` is finished, unfinished (being written, or its recorder was killed) or
    unreadable, and `why` then says so; times are UTC seconds since 1970."""

    path: str
    state: str
    why: str = ""
    started_utc: float = 0.0
    seconds: float = 0.0
    messages: int = 0
    bytes: int = 0
    host: str = ""
    model: str = ""
    emulated: bool = False
    title: str = ""
    tags: list[str] = []
    marks: int = 0


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a recording says about itself."""

    summary: Summary
    origin: meta.Origin
    engine: meta.Engine
    knobs: Knobs | None
    notes: list[str]
    sources: list[str]
    segments: int
    ending: str


def recordings_folder() -> Path:
    """Where recordings go that are given no path: this user's data folder."""
    return Path(platformdirs.user_data_dir("herdscope", appauthor=False)) / "sessions"


def fresh_path(label: str, folder: Path | None = None) -> Path:
    """A path for a new recording, named by the UTC second and `label`; makes the folder (default: this user's).

    Raise RecordingError when the folder cannot be made.
    """
    place = folder or recordings_folder()
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RecordingError(f"cannot make {place}: {error.strerror}") from None
    stamp = datetime.now(tz=UTC).strftime("%Y%m%d-%H%M%S")
    safe = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in label)
    path = place / f"{stamp}-{safe}{SUFFIX}"
    number = 2
    while path.exists():
        path = place / f"{stamp}-{safe}-{number}{SUFFIX}"
        number += 1
    return path


def find(folder: Path) -> list[Path]:
    """Recordings in a folder, oldest first; an empty list when there is no such folder."""
    return sorted((path for path in folder.glob(f"*{SUFFIX}") if path.is_file()), key=lambda path: path.stat().st_mtime)


def summarise(path: Path) -> Summary:
    """One line about a recording; never raises for a bad file, but says what is wrong with it."""
    size = path.stat().st_size if path.exists() else 0
    try:
        with Recording(path) as recording:
            return _summary(recording, size)
    except RecordingError as error:
        return Summary(path=str(path), state="unreadable", why=str(error), bytes=size)


def details(path: Path) -> Details:
    """All about a recording; raise RecordingError."""
    with Recording(path) as recording:
        ending = recording.ending
        return Details(
            summary=_summary(recording, path.stat().st_size),
            origin=recording.origin,
            engine=recording.engine,
            knobs=recording.engine.knobs,
            notes=recording.notes.notes,
            sources=sorted(recording.sources()),
            segments=recording.segment_count,
            ending=ending.reason if ending is not None else "unfinished",
        )


def annotate(path: Path, note: str | None = None, title: str | None = None) -> meta.Notes:
    """Add a note, or set the title; raise RecordingError."""

    def change(notes: meta.Notes) -> meta.Notes:
        if note is not None:
            notes = msgspec.structs.replace(notes, notes=[*notes.notes, note])
        return notes if title is None else msgspec.structs.replace(notes, title=title)

    return _change(path, change)


def tag(path: Path, add: Iterable[str] = (), remove: Iterable[str] = ()) -> meta.Notes:
    """Add and remove tags; raise RecordingError."""
    gone = set(remove)
    return _change(
        path,
        lambda notes: msgspec.structs.replace(notes, tags=sorted((set(notes.tags) | set(add)) - gone)),
    )


def prunable(
    folder: Path,
    now_utc: float,
    older_than_s: float | None = None,
    keep: int | None = None,
    max_bytes: int | None = None,
) -> list[Summary]:
    """Finished recordings that a limit would delete, oldest first: those older than `older_than_s`, all but the
    newest `keep`, and as many of the oldest as bring the folder below `max_bytes`. Tagged ones are never named."""
    summaries = [summarise(path) for path in find(folder)]
    candidates = [one for one in summaries if one.state == "finished" and not one.tags]
    chosen: dict[str, Summary] = {}
    if older_than_s is not None:
        old = (one for one in candidates if now_utc - (one.started_utc + one.seconds) > older_than_s)
        chosen.update((one.path, one) for one in old)
    if keep is not None:
        chosen.update((one.path, one) for one in candidates[: max(0, len(candidates) - keep)])
    if max_bytes is not None:
        excess = sum(one.bytes for one in summaries if one.path not in chosen) - max_bytes
        for one in candidates:
            if excess <= 0:
                break
            if one.path not in chosen:
                chosen[one.path] = one
                excess -= one.bytes
    return [one for one in candidates if one.path in chosen]


def _summary(recording: Recording, size: int) -> Summary:
    first_ns, last_ns = recording.extent()
    engine, notes = recording.engine, recording.notes
    return Summary(
        path=str(recording.path),
        state="finished" if recording.ending is not None else "unfinished",
        why=recording.problems[0] if recording.problems else "",
        started_utc=recording.utc_ns(first_ns) / 1e9,
        seconds=(last_ns - first_ns) / 1e9,
        messages=recording.count(),
        bytes=size,
        host=recording.origin.host,
        model=engine.model.name if engine.model is not None else "",
        emulated=engine.emulated,
        title=notes.title,
        tags=notes.tags,
        marks=len(recording.marks()),
    )


def _change(path: Path, change: Callable[[meta.Notes], meta.Notes]) -> meta.Notes:
    database = open_for_changes(path)
    try:
        database.execute("BEGIN IMMEDIATE")
        notes = change(meta.load(database, meta.Notes) or meta.Notes())
        meta.store(database, notes)
        database.execute("COMMIT")
        return notes
    except sqlite3.Error as error:
        raise RecordingError(f"cannot change {path}: {error}") from None
    finally:
        database.close()
