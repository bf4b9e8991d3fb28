"""A span of the replay that the operator chose: once it has an end it is diagnosed, and the diagnosis shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from sessions.clock import source_id
from sessions.messages import Verdicts
from sessions.recording.errors import RecordingError
from tui.console.draw.units import clock
from tui.console.session.replayed import ReplaySession
from tui.console.sessions import Sessions
from tui.console.store.store import Store
from tui.console.view import Apart, ChosenSpan, View


class Spans:
    """At most one span, of the replay shown. `shown` is called when there is a diagnosis to look at."""

    def __init__(self, store: Store, view: View, sessions: Sessions, shown: Callable[[], None]) -> None:
        self._store = store
        self._view = view
        self._sessions = sessions
        self._shown = shown
        self._of: ReplaySession | None = None
        self._found: Apart | None = None
        self._task: asyncio.Task[None] | None = None

    def tick(self) -> None:
        """Forget the span, and what was found in it, when its recording is no longer shown."""
        if self._sessions.replay is not self._of:
            self._of = self._sessions.replay
            self._view.span = None
            if self._view.apart is self._found:
                self._view.apart = None

    def start(self) -> None:
        """The span begins at the instant shown; an end that lies before is forgotten."""
        here = self._here()
        if here is not None:
            end = self._view.span.end_ns if self._view.span is not None else None
            self._choose(ChosenSpan(here, end if end is not None and end > here else None))

    def end(self) -> None:
        """The span ends at the instant shown; without a start before it begins where the recording does."""
        here = self._here()
        if here is not None and self._of is not None:
            begin = self._view.span.start_ns if self._view.span is not None else here
            self._choose(ChosenSpan(begin if begin < here else self._of.replay.extent_ns[0], here))

    def _here(self) -> int | None:
        self.tick()
        if self._of is None:
            self._store.note("refused", "span: no recording is shown")
            return None
        return self._of.replay.position_ns

    def _choose(self, span: ChosenSpan) -> None:
        self._view.span = span
        if span.end_ns is not None and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._diagnose())

    async def _diagnose(self) -> None:
        """Diagnose the span, and once more when it was changed meanwhile."""
        done = None
        while (span := self._view.span) is not None and span.end_ns is not None and span != done and self._of:
            done, replay = span, self._of.replay
            try:
                found = await asyncio.to_thread(_verdicts, replay.recording.path, span.start_ns, span.end_ns)
            except RecordingError as error:
                self._store.note("refused", f"span: {error}")
                continue
            if self._view.span is span:
                first = replay.extent_ns[0]
                name = f"{clock(span.start_ns - first)} to {clock(span.end_ns - first)}"
                self._view.apart = self._found = Apart(name, found)
                self._shown()


def _verdicts(path: Path, start_ns: int, end_ns: int) -> Verdicts:
    from probes.diagnosis.from_recording import diagnose_recording  # costs numpy: only where it is used
    from probes.diagnosis.live import verdicts_message

    found, scores = diagnose_recording(path, None, start_ns, end_ns)
    return verdicts_message(found, source_id("console"), end_ns, str(scores[-1]) if scores else "")
