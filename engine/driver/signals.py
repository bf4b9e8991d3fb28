"""SIGTERM and SIGINT: the first ends the driver cleanly, the second at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

EXIT_FORCED = 4


class Stopped(BaseException):
    """Raised in the main thread where it cannot look at `StopSignal.asked`: while the executor is being made."""


class StopSignal:
    """Whether the process was asked to stop. While `interrupt` is set the first signal raises Stopped as well."""

    def __init__(self) -> None:
        self.asked = False
        self.interrupt = True
        self.wake: Callable[[], None] = lambda: None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            os._exit(EXIT_FORCED)
        self.asked = True
        self.wake()
        if self.interrupt:
            raise Stopped
