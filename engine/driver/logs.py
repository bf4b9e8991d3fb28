"""Lines that the driver and its workers write: to the driver's standard error, and in batches to the channel."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import deque

from sessions.messages import LogLine, LogLines

KEPT_LINES = 4096


class LogRelay:
    """Takes lines from any thread."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._lines: deque[LogLine] = deque(maxlen=KEPT_LINES)
        self._lock = threading.Lock()

    def take(self, line: LogLine) -> None:
        """A line of a worker (or, with rank None, of the driver)."""
        with self._lock:
            self._lines.append(line)
        who = "driver" if line.rank is None else f"rank {line.rank}"
        with contextlib.suppress(OSError):  # nobody reads standard error any more
            sys.stderr.write(f"{who} | {line.text}\n")  # in one piece: other threads write here too
            sys.stderr.flush()

    def say(self, text: str) -> None:
        """A line, or several, of the driver itself."""
        for part in text.splitlines():
            self.take(LogLine(time.monotonic_ns(), None, part))

    def message(self) -> LogLines | None:
        """The lines since the last call; None without any."""
        with self._lock:
            lines = list(self._lines)
            self._lines.clear()
        if not lines:
            return None
        return LogLines(source=self._source, t_ns=time.monotonic_ns(), lines=lines)
