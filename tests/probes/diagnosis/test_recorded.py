"""The diagnosis of a recording, at an instant and over a span, against what was diagnosed live."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from probes.diagnosis.from_recording import diagnose_at, diagnose_recording
from probes.diagnosis.live import LiveDiagnoser, verdicts_message
from sessions.knobs import KnobName, Knobs, KnobValue
from sessions.messages import Jumped, Marker, Verdicts
from sessions.recording import meta
from sessions.recording.errors import RecordingError
from sessions.recording.reader import Recording
from sessions.recording.segment import Recorded
from sessions.recording.writer import RecordingWriter
from tests.probes.diagnosis.emulation import SECOND_NS, Setup, turned

TURNED_S = 6.0
"""Seconds before and after the knob is turned: longer than the evidence of one diagnosis, and than one segment."""
SESSIONS: dict[str, tuple[Setup, KnobName, KnobValue]] = {
    "a herd dissolved": (Setup((8,), Knobs(8, "greedy", 256, True)), "admission", "capped"),
    "graphs turned off": (Setup((4, 4, 4, 4), Knobs(8, "rebalance", 256, True)), "cuda_graphs", False),
}
Told = tuple[int, Verdicts | None, Marker | None]


@pytest.fixture(scope="module", params=SESSIONS)
def arrivals(request: pytest.FixtureRequest) -> list[Recorded]:
    """An emulated engine's messages and when they arrived."""
    setup, knob, value = SESSIONS[request.param]
    arrived, at_ns = [], 0
    for message in turned(setup, knob, value, TURNED_S):
        at_ns = max(at_ns, message.t_ns)
        arrived.append(Recorded(at_ns, message))
    return arrived


@pytest.fixture(scope="module")
def path(arrivals: list[Recorded], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, recorded as they arrived."""
    file = tmp_path_factory.mktemp("recorded") / "session.herd"
    origin = meta.Origin(t_ns=arrivals[0].at_ns, wall_ns=1, host="test", command_line=[], versions={})
    writer = RecordingWriter(file, origin)
    for at_ns, message in arrivals:
        writer.write(at_ns, message)
        writer.commit()
    writer.close("done")
    return file


def _second_by_second(records: Sequence[Recorded]) -> Iterator[Told]:
    """(instant, verdicts, mark) as the diagnoser of a session tells them."""
    diagnoser = LiveDiagnoser("diagnosis")
    due = records[0].at_ns + SECOND_NS
    for at_ns, message in records:
        while at_ns > due:
            found = diagnoser.verdicts(due)
            yield due, found, diagnoser.change(found) if found is not None else None
            due += SECOND_NS
        diagnoser.feed(message)


def test_fed_from_the_recording_every_verdict_is_the_live_one(arrivals: list[Recorded], path: Path) -> None:
    with Recording(path) as recording:
        replayed = list(recording.records())
    live = list(_second_by_second(arrivals))
    assert list(_second_by_second(replayed)) == live
    assert sum(found is not None for _, found, _ in live) >= 8
    assert any(mark is not None for _, _, mark in live)


def test_at_any_instant_the_diagnosis_is_the_live_one(arrivals: list[Recorded], path: Path) -> None:
    for at_ns, live, _ in _second_by_second(arrivals):
        if live is None:
            with pytest.raises(RecordingError, match="too little to judge"):
                diagnose_at(path, at_ns)
            continue
        found = verdicts_message(diagnose_at(path, at_ns), live.source, at_ns)
        assert found == msgspec.structs.replace(live, scored="")


def test_after_a_jump_only_what_follows_counts(arrivals: list[Recorded]) -> None:
    at_ns = arrivals[0].at_ns + 3 * SECOND_NS
    jumped, fresh = LiveDiagnoser("diagnosis"), LiveDiagnoser("diagnosis")
    for _, message in arrivals:
        jumped.feed(message)
    assert jumped.verdicts(arrivals[-1].at_ns) is not None
    jumped.feed(Jumped(source="host", t_ns=at_ns, to_ns=at_ns))
    for diagnoser in (jumped, fresh):
        for arrived_ns, message in arrivals:
            if arrived_ns <= at_ns:
                diagnoser.feed(message)
    assert jumped.verdicts(at_ns) == fresh.verdicts(at_ns) is not None


def _causes(path: Path, begin_s: float, end_s: float) -> tuple[list[str], list[str], int]:
    """(causes, notes, predictions scored) of a span, seconds from the start."""
    with Recording(path) as recording:
        first, _ = recording.extent()
    found, scores = diagnose_recording(path, None, first + int(begin_s * 1e9), first + int(end_s * 1e9))
    return [verdict.hypothesis for verdict in found.causes], found.evidence.notes, len(scores)


@pytest.mark.parametrize("arrivals", ["a herd dissolved"], indirect=True)
def test_a_span_is_diagnosed_by_itself(arrivals: list[Recorded], path: Path) -> None:
    assert _causes(path, 1.0, 5.0) == (["herd"], [], 0)
    assert _causes(path, 7.0, 11.0) == ([], [], 0)
    causes, notes, scored = _causes(path, 2.0, 10.0)
    assert (causes, scored) == ([], 1)
    assert len(notes) == 1 and "knobs were turned" in notes[0]


@pytest.mark.parametrize("arrivals", ["a herd dissolved"], indirect=True)
@pytest.mark.parametrize(
    ("begin_s", "end_s", "words"),
    [
        (60.0, 70.0, "outside: the recording is 12"),
        (-9.0, -1.0, "outside: the recording is 12"),
        (5.0, 5.0, "no span"),
        (5.0, 2.0, "no span"),
        (3.01, 3.02, "no spans, queues or tokens"),
    ],
)
def test_what_is_no_span_is_one_line(
    arrivals: list[Recorded], path: Path, begin_s: float, end_s: float, words: str
) -> None:
    with pytest.raises(RecordingError, match=words) as error:
        _causes(path, begin_s, end_s)
    assert "\n" not in str(error.value) and "session.herd" in str(error.value)


@pytest.mark.parametrize("arrivals", ["a herd dissolved"], indirect=True)
@pytest.mark.parametrize("at_s", [-1.0, 100.0])
def test_an_instant_outside_is_one_line(arrivals: list[Recorded], path: Path, at_s: float) -> None:
    with pytest.raises(RecordingError, match="outside: the recording is"):
        diagnose_at(path, arrivals[0].at_ns + int(at_s * 1e9))
