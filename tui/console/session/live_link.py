"""Our end of a live channel: what the store wants from it, and the instruments of this machine."""

from __future__ import annotations

import time

from probes.gpu import GpuProbe
from probes.host import HostProbe, WatchedProcess
from probes.sampler import Sampler
from sessions.channel.greeting import hello
from sessions.channel.interface import Channel
from sessions.messages import EngineState
from tui.console.session.diagnoser import Diagnoser
from tui.console.store.store import Store

CAPACITY = 8192


class LiveLink:
    """Drains the channel at each frame.

    This machine's host frames (and with `sample_gpus` its GPUs' frames) are published on the channel, so that recorders
    see them too; they come back with everything else. So do the verdicts of its diagnosis, if it `publishes` them.
    """

    def __init__(self, channel: Channel, sample_gpus: bool, publishes: bool = True) -> None:
        self.channel = channel
        self._hello = hello(channel.source, "console")
        self._subscription = channel.subscribe(Store().kinds, capacity=CAPACITY)
        self._dropped = 0
        self._workers: list[WatchedProcess] = []
        gpu = GpuProbe(channel.source) if sample_gpus else None
        self._sampler = Sampler(channel.publish, gpu, HostProbe(channel.source, lambda: self._workers))
        self._sampler.start()
        self._diagnoser = Diagnoser(channel, publishes)

    def fill(self, store: Store) -> None:
        """Take everything that has arrived, and move the store to now."""
        store.clocks.anchor(self._hello)
        messages = self._subscription.drain()
        self._diagnoser.hear(messages)
        store.apply([*messages, *self._diagnoser.found()])
        dropped = self._subscription.dropped
        store.frames_lost += dropped - self._dropped
        self._dropped = dropped
        for message in messages:
            if isinstance(message, EngineState):
                self._workers = [WatchedProcess(rank.pid, "worker", rank.rank) for rank in message.ranks if rank.pid]
        store.advance(time.monotonic_ns() + store.clocks.offset_ns(self.channel.source))

    def close(self, reason: str) -> None:
        """Stop sampling and leave the channel."""
        self._diagnoser.stop()
        self._sampler.stop()
        self._subscription.close()
        self.channel.close(reason)
