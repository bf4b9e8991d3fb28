"""Diagnosing a recording: the last stretch between knob changes, and what became of earlier predictions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from probes.diagnosis.diagnose import Diagnosis, diagnose
from probes.diagnosis.from_messages import evidence_from_messages
from probes.diagnosis.phases import Phase, phases
from probes.diagnosis.score import Score, score
from sessions.messages import EngineState, KnobState, Message, QueueFrame, StageFrame, TokenFrame
from sessions.recording.errors import RecordingError
from sessions.recording.reader import Recording

_KINDS: tuple[type[Message], ...] = (EngineState, KnobState, QueueFrame, StageFrame, TokenFrame)
_SHORT_NS = 1_000_000_000
"""A last stretch shorter than this was hardly begun: the one before it says more."""


def diagnose_recording(path: Path, stages: int | None = None) -> tuple[Diagnosis, list[Score]]:
    """Diagnose the last stretch of a recording and score the predictions of those before. Raise RecordingError."""
    with Recording(path) as recording:
        found = list(phases(_messages(recording)))
    if not found:
        raise RecordingError(f"{path}: no spans, queues or tokens in it, nothing to diagnose")
    if len(found) > 1 and found[-1].end_ns - found[-1].start_ns < _SHORT_NS:
        found.pop()
    diagnoses = [diagnose(evidence_from_messages(phase.gathered, "recording", stages)) for phase in found]
    return diagnoses[-1], _scores(found, diagnoses)


def _messages(recording: Recording) -> Iterator[Message]:
    for record in recording.records(kinds=_KINDS):
        yield record.message


def _scores(found: list[Phase], diagnoses: list[Diagnosis]) -> list[Score]:
    scores = []
    for i in range(1, len(found)):
        old, new = found[i - 1].knobs, found[i].knobs
        if old is not None and new is not None:
            scored = score(diagnoses[i - 1], diagnoses[i], old, new)
            if scored is not None:
                scores.append(scored)
    return scores
