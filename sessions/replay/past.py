"""What led up to an instant, for a viewer that starts from nothing."""

from __future__ import annotations

import bisect

from sessions.messages import (
    BenchDone,
    BenchPhase,
    DroppedFrames,
    EngineState,
    Fault,
    Goodbye,
    Hello,
    KnobReply,
    KnobState,
    LoadState,
    LogLines,
    Marker,
    Message,
    QueueFrame,
    SessionHeader,
)
from sessions.recording.reader import Recording
from sessions.recording.segment import Recorded
from sessions.recording.state import SessionState

HAPPENINGS: tuple[type[Message], ...] = (
    SessionHeader,
    Hello,
    Goodbye,
    DroppedFrames,
    EngineState,
    KnobState,
    KnobReply,
    Fault,
    LogLines,
    LoadState,
    BenchPhase,
    BenchDone,
    Marker,
)
"""Kinds that come seldom, and that a viewer lists: it needs them from the beginning."""
MOST_HAPPENINGS = 20_000
"""Of more than these the oldest are given by what they left behind."""
COUNTERS_NS = 610_000_000_000
"""How far back viewers need the counters: ten minutes, and what the first rates there are measured from."""


class Past:
    """Frames of the last `frames_ns`, counters of the last ten minutes, and happenings from the beginning.

    Happenings and counters are kept once read: the next look reads what the last one did not.
    """

    def __init__(self, recording: Recording, frames_ns: int) -> None:
        self._recording = recording
        self._frames_ns = frames_ns
        self._begin_ns = recording.extent()[0] - 1
        self._first = recording.seek(self._begin_ns).state
        self._happenings = _Stretch(recording, HAPPENINGS)
        self._counters = _Stretch(recording, (QueueFrame,))

    def until(self, t_ns: int) -> list[Message]:
        """What to hand a viewer so that it knows what one that was there from the beginning knows at `t_ns`."""
        frames_from = max(self._begin_ns, t_ns - self._frames_ns)
        counters_from = max(self._begin_ns, min(frames_from, t_ns - COUNTERS_NS))
        self._counters.forget_before(counters_from)
        return [
            *self._happened(frames_from),
            *(message for message in self._state(counters_from) if isinstance(message, QueueFrame)),
            *self._counters.between(counters_from + 1, frames_from),
            *(message for message in self._state(frames_from) if not isinstance(message, (*HAPPENINGS, QueueFrame))),
            *(record.message for record in self._recording.records(frames_from + 1, t_ns)),
        ]

    def _happened(self, until_ns: int) -> list[Message]:
        """Happenings, after what was known before the recording began."""
        happened = self._happenings.between(self._begin_ns + 1, until_ns)
        old = max(0, len(happened) - MOST_HAPPENINGS)
        state = SessionState([*self._first, *happened[:old]])
        return [*(message for message in state.messages() if isinstance(message, HAPPENINGS)), *happened[old:]]

    def _state(self, t_ns: int) -> list[Message]:
        moment = self._recording.seek(t_ns)
        return SessionState([*moment.state, *(record.message for record in moment.records)]).messages()


class _Stretch:
    """Records of some kinds in one stretch of time, which grows to either side as it is asked for."""

    def __init__(self, recording: Recording, kinds: tuple[type[Message], ...]) -> None:
        self._recording = recording
        self._kinds = kinds
        self._records: list[Recorded] = []
        self._start_ns, self._end_ns = 0, -1
        """Both of them inside; empty while the end is before the start."""

    def between(self, start_ns: int, end_ns: int) -> list[Message]:
        """Messages that arrived from `start_ns` to `end_ns`, both inside."""
        if start_ns > self._end_ns or end_ns < self._start_ns:
            self._records = self._read(start_ns, end_ns)
            self._start_ns, self._end_ns = start_ns, end_ns
        if start_ns < self._start_ns:
            self._records = self._read(start_ns, self._start_ns - 1) + self._records
            self._start_ns = start_ns
        if end_ns > self._end_ns:
            self._records += self._read(self._end_ns + 1, end_ns)
            self._end_ns = end_ns
        chosen = self._records[self._place(start_ns) : self._place(end_ns + 1)]
        return [record.message for record in chosen]

    def forget_before(self, t_ns: int) -> None:
        """Let go of what arrived before `t_ns`."""
        if self._start_ns < t_ns <= self._end_ns:
            del self._records[: self._place(t_ns)]
            self._start_ns = t_ns

    def _read(self, start_ns: int, end_ns: int) -> list[Recorded]:
        return list(self._recording.records(start_ns, end_ns, self._kinds))

    def _place(self, t_ns: int) -> int:
        return bisect.bisect_left(self._records, t_ns, key=lambda record: record.at_ns)
