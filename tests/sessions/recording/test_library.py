"""What is done with finished recordings: list, annotate, tag, prune, merge."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import msgspec
import pytest

from sessions.messages import Marker, Message, QueueFrame, SessionHeader
from sessions.recording import meta
from sessions.recording.errors import RecordingError
from sessions.recording.library import annotate, details, find, fresh_path, prunable, summarise, tag
from sessions.recording.merge import merge
from sessions.recording.reader import Recording
from sessions.recording.verify import verify
from sessions.recording.writer import RecordingWriter
from tests.sessions.recording.synthetic import START_NS, WALL_NS, session

ORIGIN = meta.Origin(
    t_ns=START_NS, wall_ns=WALL_NS, host="host", command_line=["herdscope", "run"], versions={"x": "1"}
)


def record(path: Path, seconds: int = 2, origin: meta.Origin = ORIGIN, close: bool = True) -> Path:
    writer = RecordingWriter(path, origin)
    for at_ns, batch in session(seconds * 10, gpus=1, stages=1, spans_per_second=10):
        for message in batch:
            writer.write(at_ns, message)
        writer.commit()
    if close:
        writer.close("done")
    else:
        writer.abandon()
    return path


def test_lists_good_and_bad_files(tmp_path: Path) -> None:
    record(tmp_path / "good.herd")
    record(tmp_path / "killed.herd", close=False)
    (tmp_path / "bad.herd").write_bytes(b"nonsense" * 1000)
    (tmp_path / "other.txt").write_text("no recording")
    for number, name in enumerate(("good.herd", "killed.herd", "bad.herd")):
        os.utime(tmp_path / name, (number, number))
    good, killed, bad = (summarise(path) for path in find(tmp_path))
    assert (good.state, good.seconds, good.model, good.host) == ("finished", 2.0, "tiny", "host")
    assert good.started_utc == WALL_NS / 1e9
    assert good.messages == 3 + 20 * 3
    assert killed.state == "unfinished"
    assert bad.state == "unreadable"
    assert "is no herdscope recording" in bad.why
    assert find(tmp_path / "none") == []


def test_notes_titles_and_tags(tmp_path: Path) -> None:
    path = record(tmp_path / "x.herd")
    annotate(path, note="the fan failed at 3 s")
    annotate(path, note="replaced", title="Monday")
    tag(path, add=["good", "keep"])
    tag(path, add=["keep"], remove=["good"])
    about = details(path)
    assert about.notes == ["the fan failed at 3 s", "replaced"]
    assert (about.summary.title, about.summary.tags) == ("Monday", ["keep"])
    assert about.ending == "done"
    assert about.origin.command_line == ["herdscope", "run"]
    assert verify(path).problems == []


def test_annotating_a_file_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "x.herd"
    writer = RecordingWriter(path, ORIGIN)
    annotate(path, note="now")
    writer.write(START_NS, Marker(source="s", t_ns=1, category="note", text="t"))
    writer.commit()
    writer.close("done")
    assert details(path).notes == ["now"]
    with pytest.raises(RecordingError, match="does not exist"):
        annotate(tmp_path / "none.herd", note="x")


def test_prune_spares_tagged_and_unfinished(tmp_path: Path) -> None:
    for number in range(5):
        path = record(tmp_path / f"{number}.herd")
        os.utime(path, (number, number))
    tag(tmp_path / "0.herd", add=["keep"])
    os.utime(tmp_path / "0.herd", (0, 0))
    killed = record(tmp_path / "killed.herd", close=False)
    os.utime(killed, (0, 0))
    now = WALL_NS / 1e9 + 100

    def names(**limits: float | int) -> list[str]:
        return [Path(one.path).name for one in prunable(tmp_path, now, **limits)]  # type: ignore[arg-type]

    assert names(keep=2) == ["1.herd", "2.herd"]
    assert names(older_than_s=1000) == []
    assert names(older_than_s=50) == ["1.herd", "2.herd", "3.herd", "4.herd"]
    total = sum(path.stat().st_size for path in find(tmp_path))
    assert names(max_bytes=total - 1) == ["1.herd"]
    assert names(max_bytes=0) == ["1.herd", "2.herd", "3.herd", "4.herd"]
    assert names() == []


def _write(path: Path, origin: meta.Origin, messages: list[tuple[int, Message]]) -> Path:
    writer = RecordingWriter(path, origin)
    for at_ns, message in messages:
        writer.write(at_ns, message)
    writer.commit()
    writer.close("done")
    return path


def test_merge_puts_two_hosts_on_one_clock(tmp_path: Path) -> None:
    # Host b's monotonic clock is 7 s behind host a's: the same UTC at a smaller number.
    shift = 7_000_000_000
    a = ORIGIN
    b = msgspec.structs.replace(ORIGIN, t_ns=START_NS - shift, host="other")

    def mark(source: str, t_ns: int, text: str) -> Message:
        return Marker(source=source, t_ns=t_ns, category="note", text=text)

    header = SessionHeader(source="b-1/e/1", t_ns=START_NS - shift, session="s", wall_ns=WALL_NS, host="b")
    from_a, from_b = mark("a-1/e/1", START_NS + 10, "a"), mark("b-1/e/1", START_NS - shift + 20, "b")
    both = mark("a-1/e/1", START_NS + 30, "both heard this")
    first = _write(tmp_path / "a.herd", a, [(START_NS + 10, from_a), (START_NS + 35, both)])
    second = _write(
        tmp_path / "b.herd",
        b,
        [(START_NS - shift, header), (START_NS - shift + 20, from_b), (START_NS - shift + 40, both)],
    )
    merged = merge([first, second], tmp_path / "m.herd")
    assert (merged.messages, merged.duplicates) == (4, 1)
    assert merged.offsets_s == {str(first): 0.0, str(second): 7.0, "b-1": 7.0}
    with Recording(tmp_path / "m.herd") as recording:
        got = [(r.at_ns - START_NS, r.message.t_ns - START_NS, type(r.message).__name__) for r in recording.records()]
        texts = [r.message.text for r in recording.records() if isinstance(r.message, Marker)]
        assert recording.origin.host == "host, other"
    # Host a's own clock needs no move, also where host b heard it.
    assert got == [(0, 0, "SessionHeader"), (10, 10, "Marker"), (20, 20, "Marker"), (35, 30, "Marker")]
    assert texts == ["a", "b", "both heard this"]
    assert verify(tmp_path / "m.herd").problems == []


def test_merge_of_too_few_or_onto_a_file(tmp_path: Path) -> None:
    path = record(tmp_path / "x.herd")
    with pytest.raises(RecordingError, match="at least two"):
        merge([path], tmp_path / "m.herd")
    with pytest.raises(RecordingError, match="exists already"):
        merge([path, path], path)


def test_merge_keeps_a_file_s_own_repetitions(tmp_path: Path) -> None:
    path = record(tmp_path / "x.herd", seconds=5)
    other = _write(
        tmp_path / "y.herd", ORIGIN, [(START_NS, Marker(source="y", t_ns=START_NS, category="note", text="t"))]
    )
    merged = merge([path, other], tmp_path / "m.herd")
    assert merged.duplicates == 0
    with Recording(path) as before, Recording(tmp_path / "m.herd") as after:
        frames = list(before.records(kinds=[QueueFrame]))
        assert list(after.records(kinds=[QueueFrame])) == frames


def test_an_old_recording_is_readable_by_any_sqlite_tool(tmp_path: Path) -> None:
    path = record(tmp_path / "x.herd")
    with sqlite3.connect(path) as database:
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        made = msgspec.json.decode(database.execute("SELECT value FROM meta WHERE key = 'origin'").fetchone()[0])
    database.close()
    assert {"meta", "segments", "keyframes", "markers", "rollups"} <= tables
    assert made["host"] == "host"


def test_fresh_paths_never_collide(tmp_path: Path) -> None:
    made = []
    for _ in range(3):
        path = fresh_path("a model/with:signs", tmp_path / "new")
        path.touch()
        made.append(path)
    assert len(set(made)) == 3
    assert all(path.parent == tmp_path / "new" and "a-model-with-signs" in path.name for path in made)
    with pytest.raises(RecordingError, match="cannot make"):
        fresh_path("x", made[0] / "below a file")
