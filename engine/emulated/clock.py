"""The clocks of the emulated cluster: wall time for the console, virtual time for benchmarks and sweeps."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from sessions.clock import Clock


class WaitingClock(Clock, Protocol):
    """A clock that can also let time pass."""

    def wait_until(self, t_ns: int) -> None:
        """Return at `t_ns`, or before it when `wake` is called."""
        ...

    def pass_until(self, t_ns: int) -> None:
        """Return at `t_ns`, whatever happens."""
        ...

    def wake(self) -> None:
        """End a wait now (or the next one at once); callable from any thread."""
        ...


class WallClock:
    """The host's monotonic clock."""

    def __init__(self) -> None:
        self._wakes = threading.Semaphore(0)

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def wait_until(self, t_ns: int) -> None:
        seconds = (t_ns - time.monotonic_ns()) / 1e9
        if self._wakes.acquire(timeout=max(0.0, seconds)):
            while self._wakes.acquire(blocking=False):
                pass

    def pass_until(self, t_ns: int) -> None:
        time.sleep(max(0.0, (t_ns - time.monotonic_ns()) / 1e9))

    def wake(self) -> None:
        # A semaphore, not a condition: releasing it from a signal handler cannot deadlock with a wait it interrupted.
        self._wakes.release()


class VirtualClock:
    """Time that passes only by waiting for it. Starts at `now_ns`; used by one thread."""

    def __init__(self, now_ns: int = 0) -> None:
        self._now_ns = now_ns
        self._woken = False

    def now_ns(self) -> int:
        return self._now_ns

    def wait_until(self, t_ns: int) -> None:
        if self._woken:
            self._woken = False
        else:
            self.pass_until(t_ns)

    def pass_until(self, t_ns: int) -> None:
        self._now_ns = max(self._now_ns, t_ns)

    def wake(self) -> None:
        self._woken = True
