"""Messages into a recording."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from probes.headless.sink import SinkGone
from sessions.messages import Message
from sessions.recording import meta
from sessions.recording.errors import RecordingError
from sessions.recording.recorder import TICK_S, Arrivals
from sessions.recording.writer import RecordingWriter


class RecordingSink:
    """Writes a *.herd file, committed ten times a second. Raise RecordingError when it cannot be made."""

    def __init__(self, path: Path, command_line: Sequence[str]) -> None:
        self._writer = RecordingWriter(path, meta.origin(command_line))
        self._arrivals = Arrivals()
        self._committed = time.monotonic()

    def write(self, message: Message) -> None:
        try:
            self._writer.write(self._arrivals.at(message, time.monotonic_ns()), message)
            if time.monotonic() - self._committed >= TICK_S:
                self._writer.commit()
                self._committed = time.monotonic()
        except RecordingError as error:
            self._writer.abandon()
            raise SinkGone(f"recording stopped: {error}") from error

    def close(self) -> None:
        self._writer.close("the probe ended")
