"""Recording the session: started and stopped by a key, and the flight recorder that always keeps the last minutes."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from sessions.channel.interface import Channel, ChannelError
from tui.console.store.store import Store
from tui.console.view import View

if TYPE_CHECKING:
    from sessions.recording.flight import FlightRecorder
    from sessions.recording.recorder import Recorder

FLIGHT_MINUTES = 5.0


class Recordings:
    """At most one recorder, and one flight recorder, on the session's channel.

    `at_once` is a file to record the first session to, as soon as it is connected.
    """

    def __init__(self, store: Store, view: View, folder: Path, at_once: Path | None = None) -> None:
        self._store = store
        self._view = view
        self._folder = folder
        self._at_once = at_once
        self._channel: Channel | None = None
        self._recorder: Recorder | None = None
        self._flight: FlightRecorder | None = None
        self._said: deque[str] = deque()
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._looked_back = 0

    @property
    def path(self) -> Path | None:
        """The file being written now."""
        return self._recorder.path if self._recorder is not None else None

    def use(self, channel: Channel | None) -> None:
        """Follow the session's channel: a new one ends what was recorded from the old one."""
        if channel is self._channel:
            return
        self.stop()
        self._channel = channel
        if channel is not None:
            from sessions.recording.flight import FlightRecorder

            try:
                self._flight = FlightRecorder(channel, FLIGHT_MINUTES)
            except ChannelError:
                self._flight = None
            path, self._at_once = self._at_once, None
            if path is not None:
                self.start(path)

    def tick(self) -> None:
        """Say what the recorder's thread has to say."""
        while self._said:
            self._store.note("alert", self._said.popleft())
            self._recorder = None
        self._view.recording = self.path.name if self.path is not None else ""

    def toggle(self) -> None:
        """Start recording, or stop."""
        if self._recorder is not None:
            path = self._recorder.path
            self._recorder.close()
            self._recorder = None
            self._store.note("note", f"recorded to {path}")
        else:
            self.start(self._new_path())

    def start(self, path: Path) -> None:
        """Record to `path` from now on."""
        from sessions.recording.errors import RecordingError
        from sessions.recording.recorder import Recorder

        if self._channel is None:
            self._store.note("refused", "record: nothing is connected")
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._recorder = Recorder(self._channel, path, on_stop=self._said.append)
        except (RecordingError, ChannelError, OSError) as error:
            self._store.note("refused", f"record: {error}")
            return
        self._store.note("note", f"recording to {path}")

    def save_flight(self, path: Path | None = None) -> Path | None:
        """Write the last minutes into a recording; its path, or None when that was not possible (and was said)."""
        from sessions.recording.errors import RecordingError

        if self._flight is None:
            self._store.note("refused", "nothing has been kept of this session")
            return None
        target = path or self._new_path("flight")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._flight.save(target)
        except (RecordingError, OSError) as error:
            self._store.note("refused", f"save: {error}")
            return None
        self._store.note("note", f"the last minutes are in {target}")
        return target

    def look_back(self) -> Path | None:
        """A recording of the session until now: the one being written, or the last minutes in a file of our own, which
        lasts as long as this object."""
        if self._recorder is not None:
            return self._recorder.path
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="herdscope-")
        self._looked_back += 1
        return self.save_flight(Path(self._scratch.name) / f"look-back-{self._looked_back}.herd")

    def stop(self) -> None:
        """Finish both."""
        recorder, self._recorder = self._recorder, None
        flight, self._flight = self._flight, None
        if recorder is not None:
            recorder.close()
        if flight is not None:
            flight.close()

    def _new_path(self, what: str = "session") -> Path:
        return self._folder / time.strftime(f"{what}-%Y%m%d-%H%M%S.herd", time.gmtime())
