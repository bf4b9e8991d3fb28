"""Killed recorders, full disks, cut and flipped files: a clear line, and nothing else is lost."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sessions.messages import Marker
from sessions.recording import meta
from sessions.recording.errors import RecordingError
from sessions.recording.reader import Recording
from sessions.recording.segment import Recorded
from sessions.recording.verify import verify
from sessions.recording.writer import RecordingWriter
from tests.sessions.recording.synthetic import START_NS, WALL_NS, session
from tests.sessions.recording.test_file import write

ORIGIN = meta.Origin(t_ns=START_NS, wall_ns=WALL_NS, host="host", command_line=["herdscope"], versions={})
KILLS = 50

# Forks a recorder for each path it reads, and says its pid, then when it is dead. The recorder goes at fifty times the
# real rate, so that a kill lands in any phase of tick and fold, and logs each tick that it has committed.
RECORDERS = """
import os, sys, time
from sessions.recording import meta
from sessions.recording.writer import RecordingWriter
from tests.sessions.recording.synthetic import session
for line in sys.stdin:
    path = line.strip()
    pid = os.fork()
    if pid == 0:
        log = os.open(path + ".log", os.O_CREAT | os.O_WRONLY)
        writer = RecordingWriter(path, meta.origin([]))
        for at_ns, batch in session(2_000, gpus=2, stages=2, spans_per_second=40):
            for message in batch:
                writer.write(at_ns, message)
            writer.commit()
            os.write(log, b"%d\\n" % at_ns)
            time.sleep(0.002)
        os._exit(1)  # nobody killed it
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("dead", flush=True)
"""


def test_fifty_kills_at_random_instants_lose_nothing_committed(tmp_path: Path) -> None:
    draw = random.Random(1)
    expected = [
        (at, message) for at, batch in session(1000, gpus=2, stages=2, spans_per_second=40) for message in batch
    ]
    recorders = subprocess.Popen(
        [sys.executable, "-c", RECORDERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert recorders.stdin is not None
    assert recorders.stdout is not None
    folded = 0
    for number in range(KILLS):
        path = tmp_path / f"{number}.herd"
        print(path, file=recorders.stdin, flush=True)
        pid = int(recorders.stdout.readline())
        log = path.with_name(path.name + ".log")
        while not log.exists() or not log.stat().st_size:
            time.sleep(0.001)
        time.sleep(draw.uniform(0.0, 0.3))
        os.kill(pid, signal.SIGKILL)
        assert recorders.stdout.readline() == "dead\n"
        folded += _check(path, int(log.read_text().splitlines()[-1]), expected)
    recorders.stdin.close()
    assert recorders.wait(10) == 0
    assert folded > 0, "some must die after a fold"


def _check(path: Path, committed: int, expected: list[tuple[int, object]]) -> int:
    with Recording(path) as recording:
        records = list(recording.records())
        assert recording.ending is None
        assert recording.problems == []
        segments = recording.segment_count
    # Everything of every tick that was committed, and nothing of a tick that was not whole.
    assert records[-1].at_ns >= committed
    assert [tuple(record) for record in records] == expected[: len(records)]
    assert expected[len(records)][0] > records[-1].at_ns
    assert verify(path).problems == []
    return segments


def _limited(limit: int, path: Path) -> subprocess.CompletedProcess[str]:
    code = """
import sys
from sessions.recording import meta
from sessions.recording.errors import RecordingError
from sessions.recording.writer import RecordingWriter
from tests.sessions.recording.synthetic import session
writer = RecordingWriter(sys.argv[1], meta.origin([]))
done = None
try:
    for at_ns, batch in session(1000, gpus=2, stages=2):
        for message in batch:
            writer.write(at_ns, message)
        writer.commit()
        done = at_ns
except RecordingError as error:
    writer.abandon()
    print(done, error)
"""
    return subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )


def test_a_full_disk_ends_the_recording_with_a_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "x.herd"
    result = _limited(400_000, path)
    assert result.stderr == ""
    done, error = result.stdout.strip().split(" ", 1)
    assert error.startswith(f"cannot write {path}: ")
    assert "\n" not in error
    expected = [(at, m) for at, batch in session(200, gpus=2, stages=2) if at <= int(done) for m in batch]
    with Recording(path) as recording:
        assert [tuple(record) for record in recording.records()] == expected
    assert verify(path).problems == []


def test_folders_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"cannot write .*: No such file or directory"):
        RecordingWriter(tmp_path / "none" / "x.herd", ORIGIN)
    with pytest.raises(RecordingError, match=r"cannot write /proc/x\.herd"):
        RecordingWriter("/proc/x.herd", ORIGIN)


def _recorded(path: Path, close: bool = True) -> list[Recorded]:
    return write(path, session(150, gpus=1, stages=1, spans_per_second=100), close)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Recorded]]:
    path = tmp_path_factory.mktemp("long") / "x.herd"
    return path, write(path, session(600))


@pytest.mark.parametrize("share", [0.6, 0.8, 0.95])
def test_a_cut_file_keeps_what_is_left(long: tuple[Path, list[Recorded]], tmp_path: Path, share: float) -> None:
    whole, records = long
    path = tmp_path / "x.herd"
    shutil.copy(whole, path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(int(size * share))
    verdict = verify(path)
    assert verdict.problems
    assert all("\n" not in problem for problem in verdict.problems)
    with Recording(path) as recording:
        left = list(recording.records())
        for t_ns in range(START_NS, records[-1].at_ns, 2_000_000_000):
            recording.seek(t_ns)
    assert 0 < len(left) < len(records)
    by_time = {(record.at_ns, type(record.message), record.message.t_ns): record for record in records}
    assert all(by_time[r.at_ns, type(r.message), r.message.t_ns] == r for r in left[::50])


def test_flipped_bytes_are_noticed_and_cost_only_their_segment(tmp_path: Path) -> None:
    whole = tmp_path / "whole.herd"
    records = _recorded(whole)
    draw = random.Random(2)
    changed = 0
    for number in range(30):
        path = tmp_path / f"{number}.herd"
        raw = bytearray(whole.read_bytes())
        for _ in range(3):
            raw[draw.randrange(100, len(raw))] ^= 1 << draw.randrange(8)
        path.write_bytes(raw)
        try:
            with Recording(path) as recording:
                got = list(recording.records())
                problems = list(recording.problems)
            noticed = verify(path).problems
        except RecordingError as error:
            assert "\n" not in str(error)
            continue
        if got == records:
            continue  # free space, a rollup, an index: no message is touched
        changed += 1
        assert noticed
        assert problems
        assert len(got) > len(records) / 4
    assert changed >= 3, "the flips must hit messages too"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is no herdscope recording"),
        (b"hello, I am a text file\n" * 100, "is no herdscope recording, or is damaged at its start"),
        (b"SQLite format 3\x00" + bytes(4096), "is no herdscope recording, or is damaged at its start"),
    ],
)
def test_files_that_are_no_recording(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "x.herd"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=why):
        Recording(path)


def test_other_databases_and_newer_recordings_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.herd"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE meta (key, value)")
    database.close()
    with pytest.raises(RecordingError, match="is no herdscope recording"):
        Recording(other)
    newer = tmp_path / "newer.herd"
    _recorded(newer)
    with sqlite3.connect(newer) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(RecordingError, match=r"file schema 99, newer than 1 known here: update herdscope"):
        Recording(newer)
    with pytest.raises(RecordingError, match="does not exist"):
        Recording(tmp_path / "none.herd")
    with pytest.raises(RecordingError, match="is no file"):
        Recording(tmp_path)


def test_a_recording_whose_recorder_died_is_read_from_a_copy_of_file_and_log(tmp_path: Path) -> None:
    path = tmp_path / "x.herd"
    writer = RecordingWriter(path, ORIGIN)
    writer.write(START_NS, message := Marker(source="s", t_ns=1, category="note", text="t"))
    writer.commit()
    folder = tmp_path / "kept"
    folder.mkdir()
    for name in ("x.herd", "x.herd-wal"):
        shutil.copy(tmp_path / name, folder / name)
    writer.close("done")
    from sessions.recording import schema

    database = schema._open_copy(folder / "x.herd")
    assert database.execute("SELECT count(*) FROM tail").fetchone() == (1,)
    database.close()
    with Recording(folder / "x.herd") as recording:
        assert [record.message for record in recording.records()] == [message]
