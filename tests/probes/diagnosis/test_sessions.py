"""The diagnosis of sessions: live, recorded, between knob changes, and of token times alone."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from engine.emulated.band import Band
from probes.diagnosis.diagnose import diagnose
from probes.diagnosis.from_messages import evidence_from_messages, gather
from probes.diagnosis.from_recording import diagnose_recording
from probes.diagnosis.from_tokens import TokenFileError, evidence_from_tokens
from probes.diagnosis.live import LEAST_NS, LiveDiagnoser
from probes.diagnosis.phases import WINDOW_NS, phases
from probes.diagnosis.score import Score
from sessions.codec import decode, encode
from sessions.knobs import Knobs
from sessions.messages import KnobState, Message, QueueFrame, StageFrame, Verdicts
from tests.probes.diagnosis.emulation import SECOND_NS, Setup, run, turned
from tests.probes.diagnosis.recordings import record

HERD = Setup((8,), Knobs(8, "greedy", 256, True))


@pytest.fixture(scope="module")
def session() -> list[Message]:
    """A herd of 8 on 8 stages, dissolved by a knob after three seconds."""
    return turned(HERD, "admission", "capped")


def _feed(live: LiveDiagnoser, messages: list[Message]) -> list[Verdicts]:
    told = []
    last = 0
    for message in messages:
        live.feed(message)
        if isinstance(message, QueueFrame) and message.t_ns - last > SECOND_NS // 2:
            last = message.t_ns
            found = live.verdicts(message.t_ns)
            if found is not None:
                told.append(found)
    return told


def test_live_verdicts_follow_the_knob(session: list[Message]) -> None:
    live = LiveDiagnoser("diagnosis")
    told = _feed(live, session)
    assert told[0].verdicts[0].hypothesis == "herd" and told[0].verdicts[0].verdict == "holds"
    assert told[0].emulated
    assert not [verdict for verdict in told[-1].verdicts if verdict.verdict == "holds"]
    assert told[-1].herd_index == 0.0
    assert "predicted" in told[-1].scored and "(kept)" in told[-1].scored
    assert not told[0].scored


def test_a_change_of_causes_marks_the_time_line(session: list[Message]) -> None:
    live = LiveDiagnoser("diagnosis")
    marks = [mark for told in _feed(live, session) if (mark := live.change(told)) is not None]
    assert [mark.category for mark in marks] == ["verdict", "verdict"]
    assert "herd" in marks[0].text and "herd" not in marks[1].text


def test_too_little_evidence_is_not_judged(session: list[Message]) -> None:
    live = LiveDiagnoser("diagnosis")
    begun = next(m.t_ns for m in session if isinstance(m, QueueFrame))
    for message in session:
        if isinstance(message, QueueFrame) and message.t_ns - begun >= LEAST_NS // 2:
            break
        live.feed(message)
    assert live.verdicts(begun + LEAST_NS) is None


def test_an_idle_engine_is_not_judged() -> None:
    live = LiveDiagnoser("diagnosis")
    idle = [
        QueueFrame(
            source="e", t_ns=i * SECOND_NS // 10, waiting=0, running=0, slots=[], in_flight=0, kv_blocks_used=0,
            kv_blocks=10, output_tokens_total=0, prompt_tokens_total=0,
        )
        for i in range(40)
    ]  # fmt: skip
    assert not _feed(live, list(idle))


def test_verdicts_travel_like_any_message(session: list[Message]) -> None:
    told = _feed(LiveDiagnoser("diagnosis"), session)[0]
    assert decode(encode(told)) == told


def test_phases_are_cut_at_knob_changes(session: list[Message]) -> None:
    found = list(phases(session))
    assert [phase.knobs.admission for phase in found if phase.knobs] == ["greedy", "capped"]
    changed = [m.t_ns for m in session if isinstance(m, KnobState)][-1]
    assert all(frame.t_ns > changed for frame in found[1].gathered.stage_frames)


def test_spans_decompose_to_the_whole(session: list[Message]) -> None:
    for phase in phases(session):
        for rank in evidence_from_messages(phase.gathered).ranks:
            parts = [getattr(rank.decomposition, name) for name in rank.decomposition.__struct_fields__]
            assert sum(parts) == pytest.approx(1.0, abs=1e-9)
            assert min(parts) >= 0


def test_a_herd_leaves_each_stage_idle_most_of_the_time(session: list[Message]) -> None:
    before, after = (diagnose(evidence_from_messages(phase.gathered)) for phase in phases(session))
    busy = [sum(rank.decomposition.compute for rank in found.evidence.ranks) / 8 for found in (before, after)]
    assert busy[0] == pytest.approx(1 / 8, abs=0.02)
    assert busy[1] > 0.8
    assert before.bubble is not None and before.bubble.herd > 0.7 and before.bubble.too_few < 0.2


def test_slot_sizes_alone_show_the_herd() -> None:
    messages = [m for m in run(HERD).messages if not isinstance(m, StageFrame)]
    found = diagnose(evidence_from_messages(gather(messages)))
    assert found.evidence.source == "slots"
    assert [verdict.hypothesis for verdict in found.causes] == ["herd"]
    unknown = {verdict.hypothesis for verdict in found.verdicts if verdict.verdict == "unknown"}
    assert {"interconnect", "host", "stage_imbalance"} <= unknown


def _tokens(offsets: list[float], cycle: float = 0.08, rounds: int = 30) -> str:
    return "\n".join(
        json.dumps({"request": f"r{i}", "t": n * cycle + offset})
        for n in range(rounds)
        for i, offset in enumerate(offsets)
    )


def test_token_times_alone() -> None:
    herd = diagnose(evidence_from_tokens(_tokens([0.0] * 8), "t", 8))
    even = diagnose(evidence_from_tokens(_tokens([i * 0.01 + 0.005 for i in range(8)]), "t", 8))
    assert [verdict.hypothesis for verdict in herd.causes] == ["herd"]
    assert pytest.approx(1.0, abs=0.05) == herd.herd.B
    assert not even.causes
    assert pytest.approx(0.0, abs=0.15) == even.herd.B
    assert herd.herd.H is None and herd.herd.why["H"]


def test_token_times_without_stages_say_what_is_missing() -> None:
    found = diagnose(evidence_from_tokens(_tokens([0.0] * 8), "t", None))
    assert not found.causes
    assert any("--stages" in note for note in found.evidence.notes)


@pytest.mark.parametrize("text", ["", "{}", '{"request": 1}', "tokens"])
def test_bad_token_files_are_named_in_one_line(text: str) -> None:
    with pytest.raises(TokenFileError) as error:
        evidence_from_tokens(text, "t.jsonl", 8)
    assert "\n" not in str(error.value) and "t.jsonl" in str(error.value)


def test_a_score_says_whether_the_band_was_kept() -> None:
    kept = Score(knob="admission = capped", predicted=Band(2.3, 2.5, 2.7), got=2.5)
    assert str(kept) == "admission = capped: predicted 2.3-2.7x, got 2.5x (kept)"
    assert not Score(knob="k", predicted=Band(2.3, 2.5, 2.7), got=1.5).kept


def test_a_recording_is_diagnosed_like_its_messages(session: list[Message], tmp_path: Path) -> None:
    found, scores = diagnose_recording(record(session, tmp_path / "session.herd"))
    assert found.evidence.source == "recording"
    assert not found.causes
    assert [score.kept for score in scores] == [True]


def test_of_a_long_stretch_only_the_end_is_kept(session: list[Message]) -> None:
    frames = [m for m in session if isinstance(m, QueueFrame)][:25]
    hours = [
        msgspec.structs.replace(frame, t_ns=frame.t_ns + n * 3 * SECOND_NS) for n in range(400) for frame in frames
    ]
    (phase,) = phases(hours)
    kept = phase.gathered.queue_frames
    assert kept[-1] == hours[-1]
    assert WINDOW_NS <= kept[-1].t_ns - kept[0].t_ns <= 2 * WINDOW_NS + 3 * SECOND_NS
