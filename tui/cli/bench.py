"""`herdscope bench`: measure an engine at one or more loads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tui.cli.engine_options import EngineChoice, engine_options
from tui.cli.output import json_option, note, print_json
from tui.cli.param_types import POSITIVE_NUMBERS, WHOLE_NUMBERS
from tui.cli.record_option import record_option
from tui.cli.workload_options import workload_options

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sessions.bench.target import Target
    from sessions.channel.interface import Channel
    from sessions.load.workload import LoadPoint, Workload
    from sessions.results import BenchResult


@click.command()
@click.option(
    "--connect",
    metavar="SOCKET|URL",
    help="Measure the engine behind this socket, or a server at http://HOST:PORT, instead of starting one.",
)
@click.option("--concurrency", type=WHOLE_NUMBERS, help="Closed loops to measure  [default: 1,4,16]")
@click.option("--rate", type=POSITIVE_NUMBERS, help="Measure open arrivals at these rates (requests a second) instead.")
@click.option("--requests", type=click.IntRange(min=1), help="Measured requests a point  [default: 4 a stream]")
@click.option("--warmup", type=click.IntRange(min=0), help="Requests before the measured window  [default: 1 a stream]")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Repetitions of the sweep.")
@click.option("--label", default="", help="A name for the run, shown when runs are compared.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Also write the result to this file.")
@click.option("--save", is_flag=True, help="Also keep the result among the user's own.")
@click.option("--wall", is_flag=True, help="Run an emulated cluster in wall time, not in virtual time.")
@record_option
@json_option
@workload_options
@engine_options
def bench(
    connect: str | None,
    concurrency: tuple[int, ...] | None,
    rate: tuple[float, ...] | None,
    requests: int | None,
    warmup: int | None,
    repeat: int,
    label: str,
    output: Path | None,
    save: bool,
    record: Path | None,
    wall: bool,
    as_json: bool,
    workload: Workload,
    engine: EngineChoice,
) -> None:
    """Measure an engine: throughput, latencies, herd and occupancy at one or more loads.

    \b
    Example: herdscope bench --pp 4 --async-depth 4 --admission greedy --concurrency 16
             herdscope bench --concurrency 1,4,16 --repeat 5 --output before.json
             herdscope bench --workload mooncake:trace.jsonl --speed 20 --prompt-cap 256 --json
             herdscope bench --connect http://localhost:8000 --concurrency 1,4,16
             herdscope bench --emulate 8x-rtx-pro-6000 --model kimi-k2.6 --concurrency 8
    """
    import msgspec

    from sessions.bench.text import DEFINITIONS, summary
    from tui.cli.engine_session import open_target
    from tui.cli.results_folder import results_folder

    workload = msgspec.structs.replace(workload, requests=requests or 0, warmup=warmup)
    points = load_points(workload, concurrency, rate)
    try:
        result = _measure(open_target(engine, connect, record, wall), workload, points, repeat, label)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    for path in [*([output] if output else []), *([results_folder() / f"{result.run}.json"] if save else [])]:
        _write(path, result)
    if as_json:
        print_json(result)
    else:
        click.echo(summary(result))
        note(f"\n{DEFINITIONS}")


def load_points(
    workload: Workload, concurrency: tuple[int, ...] | None, rate: tuple[float, ...] | None
) -> list[LoadPoint]:
    """The points to measure. Raise UsageError for flags that contradict each other."""
    from sessions.load.workload import LoadPoint

    if workload.source == "mooncake":
        if concurrency or rate:
            raise click.UsageError("a trace has its own arrivals: leave out --concurrency and --rate")
        return [LoadPoint()]
    if concurrency and rate:
        raise click.UsageError("give either --concurrency or --rate")
    if rate:
        return [LoadPoint(rate=each) for each in rate]
    return [LoadPoint(concurrency=each) for each in concurrency or (1, 4, 16)]


def _measure(
    opening: AbstractContextManager[tuple[Target, Channel | None]],
    workload: Workload,
    points: list[LoadPoint],
    repeat: int,
    label: str,
) -> BenchResult:
    from sessions.bench.publish import publish_result, publisher
    from sessions.bench.runner import Progress, run_bench
    from tui.cli.progress import progress_bar

    def on_terminal(progress: Progress) -> None:
        show(progress.fraction, f"{progress.detail} {progress.phase}")

    with opening as (target, channel), progress_bar("bench") as show:
        report = publisher(channel, on_terminal) if channel else on_terminal
        result = run_bench(target, workload, points, repeat=repeat, report=report, label=label)
        if channel:
            publish_result(channel, result)
        return result


def _write(path: Path, result: BenchResult) -> None:
    from sessions.bench.files import write_result

    path.parent.mkdir(parents=True, exist_ok=True)
    write_result(path, result)
    note(f"result written to {path}")
