"""`herdscope compare`: is it a difference, how large, and what else differed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tui.cli.output import json_option, print_json

if TYPE_CHECKING:
    from sessions.results import BenchResult


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Compare runs of different workloads all the same.")
@click.option(
    "--alpha", type=click.FloatRange(0.0001, 0.2), default=0.05, show_default=True, help="Significance level."
)
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@json_option
def compare(results: tuple[Path, ...], force: bool, alpha: float, markdown: bool, as_json: bool) -> None:
    """Compare benchmark results with the first: medians, ratios, and whether they are significant.

    RESULTS are files of herdscope bench --output, names of kept results (--save), or result files of vLLM bench serve,
    SGLang bench_serving, aiperf or guidellm.

    \b
    Example: herdscope bench --repeat 6 --admission greedy --output before.json
             herdscope bench --repeat 6 --admission rebalance --output after.json
             herdscope compare before.json after.json
    """
    from sessions.compare.compare import WorkloadMismatch, compare_runs
    from sessions.compare.markdown import as_markdown
    from sessions.compare.text import as_text

    if len(results) < 2:
        raise click.UsageError("name at least two results")
    try:
        comparison = compare_runs([_read(path) for path in results], alpha, force)
    except WorkloadMismatch as error:
        raise click.ClickException(f"{error}; --force compares them all the same") from error
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        print_json(comparison)
    else:
        click.echo(as_markdown(comparison) if markdown else as_text(comparison))


def _read(path: Path) -> BenchResult:
    from sessions.compare.readers import read_any
    from tui.cli.results_folder import results_folder

    kept = results_folder() / f"{path}.json"
    if not path.exists() and not kept.exists():
        raise click.ClickException(f"{path}: no such file, and no kept result of that name in {kept.parent}")
    return read_any(path if path.exists() else kept)
