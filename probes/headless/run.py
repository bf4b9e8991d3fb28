"""Runs the headless probe: sampler to sinks until told to stop."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Sequence

import msgspec

from probes.gpu import GpuProbe
from probes.gpu.readings import PCIE_READING, READINGS
from probes.headless.cost import CostMeter, OwnCost
from probes.headless.sink import QueuedSink, Sink
from probes.host import HostProbe
from probes.sampler import Sampler
from sessions.clock import wall_anchor
from sessions.messages import Message, SessionHeader


class ProbeSummary(msgspec.Struct, frozen=True):
    """What a probe run did: ticks kept and missed, messages dropped for slow sinks, why it ended, what it cost."""

    ticks: int
    missed_ticks: int
    dropped: int
    ended: str
    cost: OwnCost


class HeadlessProbe:
    """Samples this host at `rate_hz` and hands each message to every sink; ends when stopped or a sink is gone."""

    def __init__(self, source: str, rate_hz: float, pcie: bool = False) -> None:
        self.gpu = GpuProbe(source, readings=(*READINGS, PCIE_READING) if pcie else READINGS)
        self.host = HostProbe(source)
        self.sampler = Sampler(self._publish, self.gpu, self.host, rate_hz)
        self._source = source
        self._sinks: list[QueuedSink] = []
        self._ended = threading.Event()
        self._why = "stopped"

    def run(self, sinks: Sequence[Sink], duration_s: float | None, command_line: Sequence[str] = ()) -> ProbeSummary:
        """Sample until `duration_s` has passed, `stop` is called, or a sink is gone."""
        self._sinks = [QueuedSink(sink, self._sink_gone) for sink in sinks]
        self._publish(self._header(command_line))
        self.sampler.start()
        cost = CostMeter()
        if not self._ended.wait(duration_s):
            self._why = "time is up"
        self.sampler.stop()
        for sink in self._sinks:
            sink.close()
        dropped = sum(sink.dropped for sink in self._sinks)
        return ProbeSummary(self.sampler.ticks, self.sampler.missed_ticks, dropped, self._why, cost.read())

    def stop(self, why: str) -> None:
        """End the run; callable from any thread and from a signal handler."""
        self._why = why
        self._ended.set()

    def _publish(self, message: Message) -> None:
        for sink in self._sinks:
            sink.publish(message)

    def _sink_gone(self, why: str) -> None:
        self.stop(why)

    def _header(self, command_line: Sequence[str]) -> SessionHeader:
        t_ns, wall_ns = wall_anchor()
        return SessionHeader(
            source=self._source,
            t_ns=t_ns,
            session=uuid.uuid4().hex,
            wall_ns=wall_ns,
            host=socket.gethostname(),
            command_line=list(command_line),
            title="probe",
        )
