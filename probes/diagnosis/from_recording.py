"""Diagnosing a recording: the last stretch between knob changes, and what became of earlier predictions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from probes.diagnosis.diagnose import Diagnosis, diagnose
from probes.diagnosis.evidence import Evidence
from probes.diagnosis.from_messages import evidence_from_messages
from probes.diagnosis.live import SETTLE_NS, WINDOW_NS, LiveDiagnoser
from probes.diagnosis.phases import WINDOW_NS as KEPT_NS
from probes.diagnosis.phases import Phase, phases
from probes.diagnosis.score import Score, score
from sessions.messages import EngineState, GpuFrame, KnobState, Message, QueueFrame, StageFrame, TokenFrame
from sessions.recording.errors import RecordingError
from sessions.recording.reader import Recording
from sessions.recording.state import SessionState

_KINDS: tuple[type[Message], ...] = (EngineState, KnobState, QueueFrame, StageFrame, TokenFrame, GpuFrame)
_SHORT_NS = 1_000_000_000
"""A last stretch shorter than this was hardly begun: the one before it says more."""


def diagnose_recording(
    path: Path, stages: int | None = None, start_ns: int | None = None, end_ns: int | None = None
) -> tuple[Diagnosis, list[Score]]:
    """Diagnose the last stretch of a recording, or of a span of it (ns of the recorder's clock), and score
    the predictions of the stretches before. Raise RecordingError, also for a span with nothing in it."""
    with Recording(path) as recording:
        where = _checked_span(recording, start_ns, end_ns)
        found = list(phases(_messages(recording, start_ns, end_ns)))
    if not found:
        raise RecordingError(f"{where} there are no spans, queues or tokens, nothing to diagnose")
    notes = _notes(found) if start_ns is not None or end_ns is not None else []
    if len(found) > 1 and found[-1].end_ns - found[-1].start_ns < _SHORT_NS:
        found.pop()
    diagnoses = [diagnose(_evidence(phase, stages)) for phase in found[:-1]]
    diagnoses.append(diagnose(_evidence(found[-1], stages, notes)))
    return diagnoses[-1], _scores(found, diagnoses)


def diagnose_at(path: Path, at_ns: int, stages: int | None = None) -> Diagnosis:
    """Diagnose what led up to an instant (recorder's clock), exactly as it was diagnosed live: the last few seconds
    since a knob was turned. Raise RecordingError, also where there is too little to judge."""
    with Recording(path) as recording:
        first, last = recording.extent()
        where = f"{path}: at {_seconds(at_ns - first)}"
        if not first <= at_ns <= last:
            raise RecordingError(f"{where} is outside: the recording is {_seconds(last - first)} long")
        messages = list(_messages(recording, at_ns - WINDOW_NS - SETTLE_NS, at_ns))
        now_ns = _engines_clock(recording, messages, at_ns)
    diagnoser = LiveDiagnoser("")
    for message in messages:
        diagnoser.feed(message)
    gathered = diagnoser.gathered(now_ns)
    if gathered is None:
        raise RecordingError(f"{where} there is too little to judge: no requests ran, or a knob had just been turned")
    return diagnose(evidence_from_messages(gathered, "recording", stages))


def _checked_span(recording: Recording, start_ns: int | None, end_ns: int | None) -> str:
    """What to call the span. Raise RecordingError when it is none."""
    first, last = recording.extent()
    if start_ns is None and end_ns is None:
        return f"{recording.path}:"
    start, end = (first if start_ns is None else start_ns), (last if end_ns is None else end_ns)
    where = f"{recording.path}: from {_seconds(start - first)} to {_seconds(end - first)}"
    if start > last or end < first:
        raise RecordingError(f"{where} is outside: the recording is {_seconds(last - first)} long")
    if start >= end:
        raise RecordingError(f"{where} is no span: the end must be after the start")
    return where


def _messages(recording: Recording, start_ns: int | None, end_ns: int | None) -> Iterator[Message]:
    """What was known of engine and knobs before the span, then what the diagnosis reads of the span."""
    if start_ns is not None:
        moment = recording.seek(start_ns - 1)
        known = SessionState([*moment.state, *(record.message for record in moment.records)])
        yield from (message for message in known.messages() if isinstance(message, EngineState | KnobState))
    for record in recording.records(start_ns, end_ns, _KINDS):
        yield record.message


def _engines_clock(recording: Recording, messages: list[Message], at_ns: int) -> int:
    """An instant of the recorder's clock on the clock of the engine, which may be another host's."""
    engine = next((message.source for message in reversed(messages) if isinstance(message, QueueFrame)), "")
    host, t_ns, wall_ns = recording.sources().get(engine, (recording.origin.host, 0, 0))
    return at_ns if host == recording.origin.host else recording.utc_ns(at_ns) - wall_ns + t_ns


def _evidence(phase: Phase, stages: int | None, notes: list[str] | None = None) -> Evidence:
    evidence = evidence_from_messages(phase.gathered, "recording", stages)
    return msgspec.structs.replace(evidence, notes=[*evidence.notes, *(notes or [])])


def _notes(found: list[Phase]) -> list[str]:
    """What of a chosen span was not diagnosed."""
    notes = []
    if len(found) > 1:
        notes.append("knobs were turned within the span: the last stretch under the same knobs is diagnosed")
    if found[-1].end_ns - found[-1].start_ns > 2 * KEPT_NS:
        notes.append(f"of a long span the last {KEPT_NS / 1e9:.0f} to {2 * KEPT_NS / 1e9:.0f} s are diagnosed")
    return notes


def _seconds(duration_ns: int) -> str:
    return f"{duration_ns / 1e9:.1f} s"


def _scores(found: list[Phase], diagnoses: list[Diagnosis]) -> list[Score]:
    scores = []
    for i in range(1, len(found)):
        old, new = found[i - 1].knobs, found[i].knobs
        if old is not None and new is not None:
            scored = score(diagnoses[i - 1], diagnoses[i], old, new)
            if scored is not None:
                scores.append(scored)
    return scores
