"""`herdscope load`: keep an engine under load until stopped."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tui.cli.output import json_option, note, print_json
from tui.cli.record_option import record_option, recorded
from tui.cli.workload_options import workload_options

if TYPE_CHECKING:
    from sessions.channel.interface import Channel
    from sessions.load.workload import LoadPoint, Workload

READY_S = 300.0


@click.command()
@click.option(
    "--connect",
    metavar="SOCKET|URL",
    required=True,
    help="The engine's socket (herdscope run shows it), or a server at http://HOST:PORT.",
)
@click.option("--concurrency", type=click.IntRange(min=0), help="Keep so many requests running  [default: 8]")
@click.option("--rate", type=click.FloatRange(min=0), help="Send open arrivals instead, so many a second.")
@click.option("--duration", type=click.FloatRange(min=0.1), help="Stop after this many seconds.")
@record_option
@json_option
@workload_options
def load(
    connect: str,
    concurrency: int | None,
    rate: float | None,
    duration: float | None,
    record: Path | None,
    as_json: bool,
    workload: Workload,
) -> None:
    """Keep an engine under load until Ctrl-C (or until a trace is over), then account for every request.

    A console on the same engine shows the load and can change it while it runs.

    \b
    Example: herdscope load --connect /run/user/1000/herdscope/e.sock --concurrency 16
             herdscope load --connect e.sock --workload mooncake:trace.jsonl --speed 20 --prompt-cap 256
    """
    from sessions.load.workload import LoadPoint
    from tui.cli.engine_session import connect_engine

    if concurrency is not None and rate is not None:
        raise click.UsageError("give either --concurrency or --rate")
    if workload.source == "mooncake":
        if concurrency is not None or rate is not None:
            raise click.UsageError("a trace has its own arrivals: leave out --concurrency and --rate")
        point = LoadPoint()
    else:
        point = LoadPoint(rate=rate) if rate is not None else LoadPoint(8 if concurrency is None else concurrency)
    with connect_engine(connect, "load") as channel, recorded(channel, record):
        _drive(channel, workload, point, duration, as_json)


def _drive(channel: Channel, workload: Workload, point: LoadPoint, duration: float | None, as_json: bool) -> None:
    import signal
    import threading

    from sessions.load.driver import LoadDriver

    try:
        driver = LoadDriver(channel, workload, point, _vocabulary(channel))
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda number, frame: driver.stop())
    timer = threading.Timer(duration, driver.stop) if duration else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    if sys.stderr.isatty():
        note("load runs; Ctrl-C ends it")
    accounts = driver.run()
    if timer is not None:
        timer.cancel()
    if as_json:
        print_json(
            {
                "submitted": accounts.submitted,
                "finished": accounts.finished,
                "cancelled": accounts.ends["cancelled"],
                "refused": accounts.ends["refused"],
                "failed": accounts.ends["failed"],
                "without_an_end": len(accounts.live),
                "reasons": dict(accounts.reasons),
            }
        )
        return
    click.echo(accounts.summary())
    for reason, count in accounts.reasons.most_common():
        click.echo(f"  {count}x {reason}")


def _vocabulary(channel: Channel) -> int:
    """The size of the engine's vocabulary, once the engine has told it."""
    from sessions.messages import EngineState

    states = channel.subscribe((EngineState,))
    deadline = time.monotonic() + READY_S
    try:
        while (left := deadline - time.monotonic()) > 0:
            state = states.get(min(left, 1.0))
            if isinstance(state, EngineState) and state.phase == "ready" and state.model is not None:
                return state.model.vocab
    finally:
        states.close()
    raise click.ClickException(f"the engine was not ready within {READY_S:.0f} s")
