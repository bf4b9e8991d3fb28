"""Instants on a rank: the host's clock on a CPU, CUDA events on a GPU, read later without stopping the device."""

from __future__ import annotations

import time
from typing import Protocol

import torch

REANCHOR_NS = 5_000_000_000
"""Events are timed in float32 ms from an anchor; a fresh anchor keeps the rounding under a microsecond."""

Mark = int | torch.cuda.Event


class DeviceClock(Protocol):
    """Marks instants of the device's work and reads them as monotonic ns of the host."""

    residual_ns: int

    def mark(self) -> Mark: ...

    def read_ns(self, mark: Mark) -> int: ...


class HostClock:
    """A CPU's work is done when the call returns."""

    residual_ns = 0

    def mark(self) -> Mark:
        """Now."""
        return time.monotonic_ns()

    def read_ns(self, mark: Mark) -> int:
        """The instant itself."""
        assert isinstance(mark, int)
        return mark


class CudaClock:
    """Events recorded in the current stream, placed on the host's clock by an anchor event seen from both sides.

    `residual_ns` bounds the error of the anchor: the time the host took to see it done.
    """

    def __init__(self) -> None:
        self.residual_ns = 0
        self._anchor()

    def _anchor(self) -> None:
        event = _event()
        before = time.monotonic_ns()
        event.record()
        event.synchronize()
        after = time.monotonic_ns()
        self._event, self._ns, self.residual_ns = event, after, after - before

    def mark(self) -> Mark:
        """Record an event in the current stream."""
        event = _event()
        event.record()
        return event

    def read_ns(self, mark: Mark) -> int:
        """When the event happened; it must be done. Moves the anchor on to it when the anchor is old."""
        assert isinstance(mark, torch.cuda.Event)
        at = self._ns + round(float(self._event.elapsed_time(mark)) * 1e6)
        if at - self._ns > REANCHOR_NS:
            self._event, self._ns = mark, at
        return at


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
