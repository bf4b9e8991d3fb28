"""The power expected of each GPU: what it draws once requests are evenly split; nothing where that is unknown."""

from __future__ import annotations

from statistics import fmean

import msgspec
import pytest

from probes.diagnosis.diagnose import diagnose
from probes.diagnosis.from_messages import evidence_from_messages, gather
from probes.diagnosis.live import LiveDiagnoser
from sessions.codec import decode, encode
from sessions.knobs import Knobs
from sessions.messages import EngineState, GpuFrame, KnobState, Message, QueueFrame, Verdicts
from tests.probes.diagnosis.emulation import SECOND_NS, Setup, run, turned

HERD = Setup((8,), Knobs(8, "greedy", 256, True))


@pytest.fixture(scope="module")
def session() -> list[Message]:
    """A herd of 8 on 8 stages, dissolved by a knob after three seconds."""
    return turned(HERD, "admission", "capped")


@pytest.fixture(scope="module")
def parts(session: list[Message]) -> tuple[list[Message], list[Message]]:
    """The messages before the knob was turned, and those from a second after it on."""
    (at,) = [m.t_ns for m in session if isinstance(m, KnobState) and m.knobs.admission == "capped"][-1:]
    known = [m for m in session if isinstance(m, EngineState | KnobState)]
    begun = next(m.t_ns for m in session if isinstance(m, QueueFrame))
    first = [m for m in session if begun + SECOND_NS < m.t_ns < at and not isinstance(m, EngineState | KnobState)]
    second = [m for m in session if m.t_ns > at + SECOND_NS and not isinstance(m, EngineState | KnobState)]
    return [known[0], known[1], *first], [known[0], known[-1], *second]


def _expected(messages: list[Message]) -> dict[str, float]:
    return diagnose(evidence_from_messages(gather(messages))).expected_watts


def _measured(messages: list[Message]) -> dict[str, float]:
    frames = [m for m in messages if isinstance(m, GpuFrame)]
    return {f.uuid: fmean(g.power_watts or 0.0 for g in frames if g.uuid == f.uuid) for f in frames}


def test_a_herds_gpus_are_expected_to_draw_what_they_draw_once_it_is_dissolved(
    parts: tuple[list[Message], list[Message]],
) -> None:
    before, after = parts
    expected, then = _expected(before), _measured(after)
    now = _measured(before)
    assert len(expected) == 8
    for uuid, watts in expected.items():
        assert watts > now[uuid] * 1.3
        assert watts == pytest.approx(then[uuid], rel=0.15)


def test_an_even_split_is_expected_to_draw_what_it_draws(parts: tuple[list[Message], list[Message]]) -> None:
    _, after = parts
    assert _expected(after) == pytest.approx(_measured(after), rel=0.1)


def test_no_gpu_is_expected_to_draw_more_than_its_cap(parts: tuple[list[Message], list[Message]]) -> None:
    def capped(message: Message) -> Message:
        return msgspec.structs.replace(message, power_limit_watts=70.0) if isinstance(message, GpuFrame) else message

    assert set(_expected([capped(message) for message in parts[0]]).values()) == {70.0}


@pytest.mark.parametrize(
    "change",
    [{"name": "GTX 1080"}, {"power_watts": None}, {"power_watts": 20.0}, {"source": "another-host/probe/1"}],
    ids=["unknown kind", "no watts told", "no more than idle", "of another host, with another clock"],
)
def test_where_it_cannot_be_known_nothing_is_expected(
    parts: tuple[list[Message], list[Message]], change: dict[str, object]
) -> None:
    changed = [msgspec.structs.replace(m, **change) if isinstance(m, GpuFrame) else m for m in parts[0]]
    assert _expected(changed) == {}


def test_without_gpu_frames_nothing_is_expected() -> None:
    quiet = [message for message in run(HERD).messages if not isinstance(message, GpuFrame)]
    assert _expected(quiet) == {}


def test_the_live_diagnosis_tells_it(session: list[Message]) -> None:
    live = LiveDiagnoser("diagnosis")
    told: list[Verdicts] = []
    for message in session:
        live.feed(message)
        if isinstance(message, QueueFrame) and (found := live.verdicts(message.t_ns)) is not None:
            told.append(found)
    assert len(told[0].expected_watts) == len(told[-1].expected_watts) == 8
    assert decode(encode(told[-1])) == told[-1]


def test_a_recording_of_before_is_read() -> None:
    old = msgspec.msgpack.encode({"kind": "verdicts", "source": "s", "t_ns": 1, "headline": "h", "verdicts": []})
    read = decode(old)
    assert isinstance(read, Verdicts) and read.expected_watts == {}
