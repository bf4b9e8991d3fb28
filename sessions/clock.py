"""Time and identity of a source: monotonic nanoseconds, one wall-clock anchor, names that stay unique over hosts."""

from __future__ import annotations

import os
import socket
import time
import uuid
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """Monotonic time in ns. The engine core takes one, so that the emulated cluster can run in virtual time."""

    def now_ns(self) -> int: ...


class MonotonicClock:
    """The host's monotonic clock (CLOCK_MONOTONIC), shared by all processes of the host."""

    def now_ns(self) -> int:
        return time.monotonic_ns()


def wall_anchor() -> tuple[int, int]:
    """Return (monotonic ns, UTC ns since 1970) of the same instant."""
    return time.monotonic_ns(), time.time_ns()


def source_id(role: str) -> str:
    """Name this process as a source: host, boot (or machine) tag, role and pid; unique over hosts and restarts."""
    return f"{socket.gethostname()}-{_boot_tag()}/{role}/{os.getpid()}"


def _boot_tag() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:6]
    except OSError:
        return f"{uuid.getnode():012x}"[-6:]
