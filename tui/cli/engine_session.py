"""An engine for the length of a command: one that runs already, or one started for it and ended with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tui.cli.output import note
from tui.cli.record_option import recorded

if TYPE_CHECKING:
    from engine.launch import EngineProcess
    from sessions.bench.target import Target
    from sessions.channel.interface import Channel
    from sessions.messages import Role
    from tui.cli.engine_options import EngineChoice

READY_S = 600.0


@contextmanager
def connect_engine(address: str, role: Role) -> Iterator[Channel]:
    """Join the engine behind a socket, or a server at http://HOST:PORT by its OpenAI endpoint. Raise ChannelError or
    ServerError when nothing answers there."""
    from probes.attach.connect import attach
    from sessions.clock import source_id

    attached = attach(address, source_id(role), role)
    try:
        yield attached.channel
    finally:
        attached.close("the command ended")


@contextmanager
def open_engine(engine: EngineChoice, connect: str | None, role: Role) -> Iterator[Channel]:
    """The channel of the engine behind `connect`, else of one started from the flags, with the GPUs sampled into its
    channel. The engine that was started ends with the block, however that ends."""
    if connect is not None:
        with connect_engine(connect, role) as channel:
            yield channel
        return
    with (
        start_engine(engine) as process,
        connect_engine(str(process.socket), role) as channel,
        sampled(channel, gpus=engine.values["emulate"] is None),
    ):
        yield channel


@contextmanager
def start_engine(engine: EngineChoice) -> Iterator[EngineProcess]:
    """An engine started from the flags, ready; it ends with the block, however that ends."""
    from engine.launch import EngineProcess, EngineStartError

    process = EngineProcess.start(engine.config())
    try:
        try:
            process.wait_ready(READY_S)
        except EngineStartError as error:
            reason, *log = str(error).splitlines()
            for line in log:
                note(line)
            raise click.ClickException(reason) from error
        yield process
    finally:
        process.stop()


@contextmanager
def sampled(channel: Channel, gpus: bool) -> Iterator[None]:
    """Publish the frames of this host meanwhile, and with `gpus` of its GPUs: an emulated engine has others."""
    from probes.gpu import GpuProbe
    from probes.host import HostProbe
    from probes.sampler import Sampler

    sampler = Sampler(channel.publish, GpuProbe(channel.source) if gpus else None, HostProbe(channel.source))
    sampler.start()
    try:
        yield
    finally:
        sampler.stop()


@contextmanager
def open_target(
    engine: EngineChoice, connect: str | None, record: Path | None, wall: bool = False
) -> Iterator[tuple[Target, Channel | None]]:
    """What a benchmark measures, and its channel: a live engine, or with --emulate the emulated cluster in virtual
    time (unless `wall`), which has no channel. With `record` the session is recorded there."""
    if connect is None and engine.values["emulate"] and not wall:
        if record is not None:
            raise click.UsageError("--record: an engine emulated in virtual time has no session to record (use --wall)")
        from engine.emulated.target import VirtualTarget

        yield VirtualTarget(engine.config()), None
        return
    from sessions.bench.channel_target import ChannelTarget

    with open_engine(engine, connect, "bench") as channel, recorded(channel, record):
        yield ChannelTarget(channel), channel
