"""What this process itself costs the host it watches."""

from __future__ import annotations

import time

import msgspec
import psutil


class OwnCost(msgspec.Struct, frozen=True):
    """CPU as a share of one core over `seconds`; resident memory at the start and at the end of them, in bytes."""

    seconds: float
    cpu_share: float
    memory_first_bytes: int
    memory_last_bytes: int


class CostMeter:
    """Measures from its making on."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._began = time.monotonic()
        self._cpu_s = time.process_time()
        self._memory_bytes = self._process.memory_info().rss

    def read(self) -> OwnCost:
        """The cost up to now."""
        seconds = max(time.monotonic() - self._began, 1e-9)
        cpu_share = (time.process_time() - self._cpu_s) / seconds
        return OwnCost(seconds, cpu_share, self._memory_bytes, self._process.memory_info().rss)
