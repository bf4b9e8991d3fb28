"""`herdscope profile`: record a few steps of every rank, say what recording cost, and diagnose the result."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tui.cli.engine_options import engine_options
from tui.cli.output import json_option, note, print_json
from tui.cli.workload_options import workload_options

if TYPE_CHECKING:
    from sessions.channel.interface import Channel, Subscription
    from sessions.load.driver import LoadDriver
    from sessions.load.workload import Workload
    from sessions.messages import EngineState, Message, ProfileReply
    from tui.cli.engine_options import EngineChoice

READY_S = 600.0
PROFILE_S = 400.0
WARM_UP_S = 3.0


@click.command()
@click.option(
    "--connect",
    metavar="SOCKET|URL",
    help="Profile the engine behind this socket, or a server at http://HOST:PORT, instead of starting one.",
)
@click.option("--steps", type=click.IntRange(1, 10_000), default=32, show_default=True, help="Micro-batches to record.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("profile"),
    show_default=True,
    help="Where the traces go, one a rank (of vLLM: the folder of its --profiler-config).",
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=0),
    help="Requests to keep running meanwhile  [default: 16; with --connect: 0, what runs already]",
)
@json_option
@workload_options
@engine_options
def profile(
    connect: str | None,
    steps: int,
    folder: Path,
    concurrency: int | None,
    as_json: bool,
    workload: Workload,
    engine: EngineChoice,
) -> None:
    """Record some steps on every rank with torch.profiler (stacks off), and diagnose them.

    \b
    Example: herdscope profile --connect /run/user/1000/herdscope/e.sock --steps 32
             herdscope profile --model qwen3-30b-a3b --load-format dummy --pp 2 --concurrency 16
    """
    from tui.cli.engine_session import open_engine

    requests = concurrency if concurrency is not None else (0 if connect is not None else 16)
    folder.mkdir(parents=True, exist_ok=True)
    with open_engine(engine, connect, "cli") as channel:
        heard = _subscribe(channel)
        state = _ready(heard)
        with _loaded(channel, workload, requests, state):
            begun_ns = time.monotonic_ns()
            reply = _record(channel, steps, folder.resolve())
            messages = heard.since(begun_ns)
    _tell(reply, messages, as_json)


class _Heard:
    """Everything that the diagnosis reads, from the moment of subscription."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.kept: list[Message] = []

    def since(self, begun_ns: int) -> list[Message]:
        """The engine's states, and frames from `begun_ns` on."""
        from sessions.messages import QueueFrame, StageFrame

        heard = [*self.kept, *self.subscription.drain()]
        return [m for m in heard if not isinstance(m, QueueFrame | StageFrame) or m.t_ns >= begun_ns]


def _subscribe(channel: Channel) -> _Heard:
    from sessions.messages import EngineState, KnobState, QueueFrame, StageFrame

    return _Heard(channel.subscribe([EngineState, KnobState, StageFrame, QueueFrame], capacity=65536))


def _ready(heard: _Heard) -> EngineState:
    from sessions.messages import EngineState

    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        message = heard.subscription.get(1.0)
        if message is None:
            continue
        heard.kept.append(message)
        if isinstance(message, EngineState) and message.phase == "ready":
            return message
    raise click.ClickException(f"the engine was not ready within {READY_S:.0f} s")


@contextmanager
def _loaded(channel: Channel, workload: Workload, requests: int, state: EngineState) -> Iterator[None]:
    """Keep `requests` running meanwhile; none when 0."""
    if requests == 0:
        yield
        return
    from sessions.load.driver import LoadDriver
    from sessions.load.workload import LoadPoint

    driver = LoadDriver(channel, workload, LoadPoint(requests), state.model.vocab if state.model else 256)
    thread = threading.Thread(target=_drive, args=(driver,), name="load", daemon=True)
    thread.start()
    time.sleep(WARM_UP_S)
    try:
        yield
    finally:
        driver.stop()
        thread.join(timeout=30.0)


def _drive(driver: LoadDriver) -> None:
    """Run the load; when the engine ends before it, there is nothing left to cancel."""
    from sessions.channel.interface import ChannelError

    with suppress(ChannelError):
        driver.run()


def _record(channel: Channel, steps: int, folder: Path) -> ProfileReply:
    from sessions.messages import ProfileReply, ProfileRequest

    number = next(_numbers)
    command = ProfileRequest(
        source=channel.source,
        t_ns=time.monotonic_ns(),
        id=f"{channel.source}-profile-{number}",
        steps=steps,
        folder=str(folder),
    )
    reply = channel.request(command, PROFILE_S)
    if not isinstance(reply, ProfileReply) or not reply.ok:
        raise click.ClickException(f"profile refused: {reply.reason}")
    return reply


_numbers = itertools.count()


def _tell(reply: ProfileReply, messages: list[Message], as_json: bool) -> None:
    from probes.diagnosis.diagnose import diagnose
    from probes.diagnosis.from_profile import evidence_from_profile
    from probes.diagnosis.report import as_data, as_text

    try:
        found = diagnose(evidence_from_profile([Path(trace) for trace in reply.traces], messages))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    before, profiled = reply.tokens_per_s_before, reply.tokens_per_s_profiled
    if as_json:
        rates = {"tokens_per_s_before": before, "tokens_per_s_profiled": profiled}
        print_json({"traces": reply.traces, **rates, "diagnosis": as_data(found)})
        return
    for trace in reply.traces:
        note(trace)
    if before and profiled is not None:
        cost = max(0.0, 1 - profiled / before)
        note(f"profiling cost {cost:.0%}: {profiled:.1f} tok/s while recording, {before:.1f} before")
    click.echo(as_text(found))
