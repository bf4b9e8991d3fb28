"""Aligns a worker's clock with the driver's."""

from __future__ import annotations

import time

import msgspec

from engine.worker_messages import Ping, Pong
from engine.worker_processes import Worker
from sessions.clock import source_id

PINGS = 16


class ClockOffset(msgspec.Struct, frozen=True):
    """Driver's time minus the worker's, and a bound of the error, in ns."""

    offset_ns: int = 0
    residual_ns: int = 0

    def to_driver(self, worker_ns: int) -> int:
        """A worker's instant on the driver's clock."""
        return worker_ns + self.offset_ns


def measure_offset(worker: Worker) -> ClockOffset:
    """Zero on the driver's own host, whose clock the worker shares; else from the quickest of PINGS round trips.

    The worker's instant lies within its round trip, so half of that bounds the error (Cristian's algorithm).
    """
    assert worker.joined is not None
    if worker.joined.clock == source_id("worker").partition("/")[0]:
        return ClockOffset()
    best = ClockOffset(0, 1 << 62)
    for _ in range(PINGS):
        worker.link.send(Ping(time.monotonic_ns()))
        answer = worker.link.receive(5.0)
        now = time.monotonic_ns()
        if isinstance(answer, Pong) and (now - answer.asked_ns) // 2 < best.residual_ns:
            half = (now - answer.asked_ns) // 2
            best = ClockOffset(answer.asked_ns + half - answer.t_ns, half)
    return best
