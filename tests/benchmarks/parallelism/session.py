"""An engine in processes of its own, its channel and this host's GPU readings, for the length of a block."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from engine.config import EngineConfig
from engine.launch import EngineProcess
from probes.gpu import GpuProbe
from sessions.bench.channel_target import ChannelTarget
from sessions.channel.interface import Channel
from sessions.channel.unix import connect_unix
from sessions.clock import source_id
from sessions.knobs import KNOB_NAMES, Knobs
from sessions.messages import GpuFrame, KnobReply, Message
from tui.cli.engine_session import sampled

READY_S = 300.0
CONNECT_S = 30.0


class Session:
    """A running engine. `ready_s`: from the start of its process to the first request it could take."""

    def __init__(self, channel: Channel, process: EngineProcess, ready_s: float) -> None:
        self.channel = channel
        self.process = process
        self.ready_s = ready_s
        self.target = ChannelTarget(channel)

    def set_knobs(self, knobs: Knobs) -> None:
        """Turn every knob that differs. Raise RuntimeError with the engine's reason when it refuses one."""
        for name in KNOB_NAMES:
            value = getattr(knobs, name)
            if value != getattr(self.target.knobs.knobs, name):
                reply = self.turn(name, value)
                if not reply.ok:
                    raise RuntimeError(f"{name}={value}: {reply.reason}")

    def turn(self, name: str, value: object) -> KnobReply:
        """Turn one knob, and wait until the engine tells the new state as well."""
        reply = self.target.turn(name, value)  # type: ignore[arg-type]
        deadline = time.monotonic() + 10.0
        while reply.ok and getattr(self.target.knobs.knobs, name) != value and time.monotonic() < deadline:
            self.target.advance(self.target.clock.now_ns() + 50_000_000)
        return reply


@contextmanager
def opened(config: EngineConfig) -> Iterator[Session]:
    """Start an engine; everything ends with the block."""
    begun = time.monotonic()
    process = EngineProcess.start(config)
    try:
        process.wait_ready(READY_S)
        ready_s = time.monotonic() - begun
        channel = connect_unix(str(process.socket), source_id("bench"), "bench", CONNECT_S)
        try:
            with sampled(channel, gpus=True):
                yield Session(channel, process, ready_s)
        finally:
            channel.close("measured")
    finally:
        process.stop()


def gpu_memory_bytes() -> dict[int, int]:
    """Memory in use on every GPU of this host; empty without GPUs."""
    probe = GpuProbe("memory")
    try:
        probe.sample_slow()
        frames = probe.sample()
    finally:
        probe.close()
    return {frame.index: frame.memory_used_bytes for frame in frames if frame.memory_used_bytes is not None}


def peak_memory_bytes(messages: list[Message]) -> dict[int, int]:
    """Most memory in use on every GPU in these frames."""
    peak: dict[int, int] = {}
    for message in messages:
        if isinstance(message, GpuFrame) and message.memory_used_bytes is not None:
            peak[message.index] = max(peak.get(message.index, 0), message.memory_used_bytes)
    return peak
