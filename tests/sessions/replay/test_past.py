"""What a jump hands a viewer: everything that is listed, the counters of the last minutes, the newest frames."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sessions.messages import KnobState, Marker, Message, QueueFrame, StageFrame
from sessions.recording import meta
from sessions.recording.reader import Recording
from sessions.recording.state import SessionState
from sessions.recording.writer import RecordingWriter
from sessions.replay import past
from sessions.replay.past import HAPPENINGS, Past
from tests.sessions.recording.synthetic import START_NS, TICK_NS, WALL_NS, session

ORIGIN = meta.Origin(t_ns=START_NS, wall_ns=WALL_NS, host="host", command_line=[], versions={})
FRAMES_NS = 3_000_000_000
COUNTERS_NS = 8_000_000_000
TICKS = 300


def made() -> list[tuple[int, Message]]:
    """Half a minute with a mark every second."""
    messages = []
    for number, (at_ns, batch) in enumerate(session(TICKS, gpus=1, stages=2, spans_per_second=10)):
        messages += [(at_ns, message) for message in batch]
        if number % 10 == 5:
            messages.append((at_ns, Marker(source="s", t_ns=at_ns, category="note", text=f"tick {number}")))
    return messages


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("past") / "x.herd"
    writer = RecordingWriter(path, ORIGIN)
    for at_ns, message in made():
        writer.write(at_ns, message)
        writer.commit()
    writer.close("done")
    return path


@pytest.mark.parametrize("most", [5, 10_000])
def test_wherever_one_jumps_what_matters_is_told(path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(past, "COUNTERS_NS", COUNTERS_NS)
    monkeypatch.setattr(past, "MOST_HAPPENINGS", most)
    everything = made()
    draw = random.Random(3)
    with Recording(path) as recording:
        looking = Past(recording, FRAMES_NS)
        for t_ns in (START_NS + draw.randrange(TICKS + 20) * TICK_NS + draw.randrange(2) for _ in range(40)):
            told = looking.until(t_ns)
            then = [(at, message) for at, message in everything if at <= t_ns]
            for kind, back_ns in ((StageFrame, FRAMES_NS), (QueueFrame, COUNTERS_NS)):
                of_kind = [message for message in told if isinstance(message, kind)]
                due = [message for at, message in then if isinstance(message, kind) and at > t_ns - back_ns]
                assert of_kind[len(of_kind) - len(due) :] == due
                assert len(of_kind) - len(due) <= (kind is QueueFrame), "and of the counters the last one before"
            listed = [message for message in told if isinstance(message, HAPPENINGS)]
            happened = [message for _, message in then if isinstance(message, HAPPENINGS)]
            assert listed[-most:] == happened[-most:]
            assert any(isinstance(message, KnobState) for message in listed)
            known = SessionState(message for _, message in then).messages()
            assert all(message in known for message in SessionState(told).messages())
            assert len(SessionState(told).messages()) == len(known)
