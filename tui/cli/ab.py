"""`herdscope ab`: vary knobs against each other and say which of them matter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tui.cli.engine_options import EngineChoice, engine_options
from tui.cli.output import json_option, note, print_json
from tui.cli.record_option import record_option
from tui.cli.workload_options import workload_options

if TYPE_CHECKING:
    from sessions.compare.ab.result import AbResult
    from sessions.compare.ab.run import AbPlan
    from sessions.load.workload import Workload

METRICS = {
    "throughput": "output_tokens_per_s",
    "ttft": "ttft_ms_p50",
    "itl": "itl_ms_p50",
    "e2e": "e2e_ms_p50",
    "energy": "energy_j_per_token",
}


@click.command()
@click.option(
    "--knob", "knobs", multiple=True, required=True, metavar="KNOB=A,B", help="A knob and its values; repeat it."
)
@click.option("--connect", metavar="SOCKET", help="Use the engine behind this socket instead of starting one.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Closed loop of so many requests  [default: 16]")
@click.option("--rate", type=click.FloatRange(0.001), help="Open arrivals, so many a second, instead.")
@click.option("--requests", type=click.IntRange(min=1), help="Measured requests a run  [default: 4 a stream]")
@click.option("--warmup", type=click.IntRange(min=0), help="Requests before each run's window  [default: 1 a stream]")
@click.option("--metric", type=click.Choice(list(METRICS)), default="throughput", help="What decides when to stop.")
@click.option("--repeat", type=click.IntRange(min=1), help="Most repetitions  [default: as the test needs]")
@click.option(
    "--alpha", type=click.FloatRange(0.0001, 0.2), default=0.05, show_default=True, help="Chance of a false claim."
)
@click.option(
    "--margin", type=click.FloatRange(0, 0.5), default=0.02, show_default=True, help="Effects within are negligible."
)
@click.option("--order-seed", type=click.IntRange(min=0), default=0, help="Seed of the random order.")
@click.option(
    "--cool-to", type=click.FloatRange(0), metavar="CELSIUS", help="Before each run wait for GPUs to cool to this."
)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Also write a report to this file.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Also write the result as JSON to this file."
)
@record_option
@json_option
@workload_options
@engine_options
def ab(
    knobs: tuple[str, ...],
    connect: str | None,
    concurrency: int | None,
    rate: float | None,
    requests: int | None,
    warmup: int | None,
    metric: str,
    repeat: int | None,
    alpha: float,
    margin: float,
    order_seed: int,
    cool_to: float | None,
    html: Path | None,
    output: Path | None,
    record: Path | None,
    as_json: bool,
    workload: Workload,
    engine: EngineChoice,
) -> None:
    """Vary knobs against each other: every combination, interleaved in random order, until each effect is decided.

    Says which knobs matter and by how much, which change each other's effect, and whether the tokens stayed the same.

    \b
    Example: herdscope ab --knob admission=greedy,rebalance --pp 4
             herdscope ab --knob admission=greedy,rebalance --knob async_depth=1,4 --pp 4 --html report.html
    """
    import msgspec

    from sessions.compare.ab.design import DesignError, Factor, check
    from sessions.compare.ab.run import AbPlan
    from sessions.compare.metrics import BY_KEY
    from sessions.load.workload import LoadPoint

    if workload.source == "mooncake":
        raise click.UsageError("ab needs the same load in every run: give --concurrency or --rate, not a trace")
    if concurrency and rate:
        raise click.UsageError("give either --concurrency or --rate")
    try:
        factors = [Factor.parse(text) for text in knobs]
        check(factors)
    except DesignError as error:
        raise click.UsageError(str(error)) from error
    plan = AbPlan(
        factors=factors,
        workload=msgspec.structs.replace(workload, requests=requests or 0, warmup=warmup),
        point=LoadPoint(rate=rate) if rate else LoadPoint(concurrency=concurrency or 16),
        metric=BY_KEY[METRICS[metric]],
        alpha=alpha,
        margin=margin,
        most=repeat,
        seed=order_seed,
        cool_to=cool_to,
    )
    _show(_run(engine, connect, record, plan), html, output, as_json)


def _run(engine: EngineChoice, connect: str | None, record: Path | None, plan: AbPlan) -> AbResult:
    from sessions.compare.ab.run import run_ab
    from tui.cli.engine_session import open_target
    from tui.cli.progress import progress_bar

    try:
        with open_target(engine, connect, record) as (target, _), progress_bar("ab") as show:
            return run_ab(target, plan, lambda at: show(at.done / at.most, at.words))
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def _show(result: AbResult, html: Path | None, output: Path | None, as_json: bool) -> None:
    from sessions.bench.files import write_result
    from sessions.compare.ab.html import as_html
    from sessions.compare.ab.text import as_text

    if html is not None:
        html.write_text(as_html(result), encoding="utf-8")
        note(f"report written to {html}")
    if output is not None:
        write_result(output, result)
        note(f"result written to {output}")
    if as_json:
        print_json(result)
    else:
        click.echo(as_text(result))
