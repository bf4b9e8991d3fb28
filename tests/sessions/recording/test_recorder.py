"""Recorders fed by a real channel: everything arrives, limits rotate, a refusing disk harms nobody."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.channel.unix import UnixHub, connect_unix
from sessions.knobs import Knobs
from sessions.messages import EngineState, KnobState, LogLine, LogLines, Marker, Message
from sessions.recording.errors import RecordingError
from sessions.recording.flight import FlightRecorder
from sessions.recording.reader import Recording
from sessions.recording.recorder import Arrivals, Limits, Recorder
from sessions.recording.verify import verify


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[UnixHub]:
    hub = UnixHub(tmp_path / "s", "hub", "engine")
    yield hub
    hub.close()


def marker(text: str) -> Marker:
    return Marker(source="hub", t_ns=time.monotonic_ns(), category="note", text=text)


def recorded(path: Path) -> list[Message]:
    with Recording(path) as recording:
        return [record.message for record in recording.records()]


def wait_until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_records_a_channel_retained_values_first(hub: UnixHub, tmp_path: Path) -> None:
    hub.publish(state := EngineState(source="hub", t_ns=time.monotonic_ns(), phase="ready"))
    peer = connect_unix(hub.path, "peer", "console", 5)
    recorder = Recorder(hub, tmp_path / "x.herd")
    sent = [marker(str(number)) for number in range(50)]
    for message in sent[:25]:
        hub.publish(message)
    wait_until(lambda: peer.wanted(Marker))
    for message in sent[25:]:
        peer.publish(message)
    wait_until(lambda: len(recorded(tmp_path / "x.herd")) >= 51)
    recorder.close()
    assert recorder.stopped == "the recording was stopped"
    assert recorded(tmp_path / "x.herd") == [state, *sent]
    with Recording(tmp_path / "x.herd") as recording:
        arrivals = [record.at_ns for record in recording.records()]
        assert recording.ending is not None
    assert arrivals == [state.t_ns, *(message.t_ns for message in sent)]
    peer.close()


def test_the_end_of_the_session_finishes_the_file(hub: UnixHub, tmp_path: Path) -> None:
    stopped: list[str] = []
    recorder = Recorder(hub, tmp_path / "x.herd", on_stop=stopped.append)
    hub.publish(last := marker("last words"))
    time.sleep(0.05)
    hub.close("over")
    wait_until(lambda: stopped)
    assert stopped == ["the session ended"]
    assert last in recorded(tmp_path / "x.herd")
    recorder.close()


def test_rotation_carries_the_state_over_and_keeps_the_last_files(hub: UnixHub, tmp_path: Path) -> None:
    hub.publish(state := KnobState(source="hub", t_ns=1, knobs=Knobs(async_depth=4)))
    recorder = Recorder(hub, tmp_path / "x.herd", Limits(max_age_s=0.25, keep=2))
    number = 0
    while len(recorder.files) < 4:
        hub.publish(marker(str(number)))
        number += 1
        time.sleep(0.02)
    recorder.close()
    assert not recorder.files[0].exists()
    assert not recorder.files[1].exists()
    kept = [path for path in recorder.files if path.exists()]
    assert len(kept) == 2
    texts: list[int] = []
    for path in kept:
        with Recording(path) as recording:
            assert recording.seek(recording.extent()[0]).state == [state]
            assert recording.origin.part == recorder.files.index(path) + 1
            assert recording.engine.knobs == Knobs(async_depth=4)
            texts += [int(r.message.text) for r in recording.records() if isinstance(r.message, Marker)]
    assert texts == list(range(texts[0], number)), "nothing is lost or repeated over a rotation"


def test_rotation_by_size(hub: UnixHub, tmp_path: Path) -> None:
    recorder = Recorder(hub, tmp_path / "x.herd", Limits(max_bytes=400_000))
    while len(recorder.files) < 2:
        hub.publish(LogLines(source="hub", t_ns=1, lines=[LogLine(1, None, "x" * 10_000)]))
        time.sleep(0.005)
    recorder.close()
    assert verify(recorder.files[0]).problems == []


def test_a_refusing_disk_stops_the_recording_and_nothing_else(
    hub: UnixHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []
    recorder = Recorder(hub, tmp_path / "x.herd", on_stop=stopped.append)
    hub.publish(first := marker("before"))
    wait_until(lambda: recorded(tmp_path / "x.herd") == [first])
    recorder._writer._database.execute("PRAGMA max_page_count = 1")  # as a full disk does: no page can be added
    for _ in range(20):
        line = os.urandom(50_000).hex()  # folded it must not fit either
        hub.publish(LogLines(source="hub", t_ns=1, lines=[LogLine(1, None, line)]))
    wait_until(lambda: stopped)
    assert stopped == [f"recording stopped: cannot write {tmp_path / 'x.herd'}: database or disk is full"]
    sub = hub.subscribe([Marker])
    hub.publish(message := marker("the channel goes on"))
    assert sub.get(5) == message
    assert recorded(tmp_path / "x.herd") == [first]
    recorder.close()


def test_flight_recorder_keeps_the_last_minutes(hub: UnixHub, tmp_path: Path) -> None:
    class Clock:
        now = time.monotonic_ns()

        def now_ns(self) -> int:
            return self.now

    clock = Clock()
    hub.publish(state := KnobState(source="hub", t_ns=clock.now, knobs=Knobs()))
    flight = FlightRecorder(hub, minutes=1.0, clock=clock)
    for number in range(30):
        clock.now += 10_000_000_000
        hub.publish(Marker(source="hub", t_ns=clock.now, category="note", text=str(number)))
        time.sleep(0.02)
        with flight._lock:
            flight._take()
    flight.save(tmp_path / "x.herd")
    with pytest.raises(RecordingError, match="exists already"):
        flight.save(tmp_path / "x.herd")
    flight.close()
    with Recording(tmp_path / "x.herd") as recording:
        first, last = recording.extent()
        texts = [record.message.text for record in recording.records() if isinstance(record.message, Marker)]
        assert recording.seek(first).state == [state]
        assert recording.ending is not None
        assert min(mark.t_ns for mark in recording.marks()) >= first
    assert texts == [str(number) for number in range(int(texts[0]), 30)]
    assert 60e9 <= last - first + 10e9 <= 100e9
    assert verify(tmp_path / "x.herd").problems == []


def test_arrivals_order_and_bound_times() -> None:
    arrivals = Arrivals()

    def at(t_ns: int, now_ns: int) -> int:
        return arrivals.at(Marker(source="s", t_ns=t_ns, category="note", text=""), now_ns)

    assert at(100, 150) == 100
    assert at(90, 150) == 100, "never backwards"
    assert at(10**18, 150) == 150, "never in the future"
    assert at(170, 250) == 170
