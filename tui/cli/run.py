"""`herdscope run`: start an engine and watch it in the console."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tui.cli.engine_options import EngineChoice, engine_options
from tui.cli.record_option import record_option

if TYPE_CHECKING:
    from tui.console.options import ConsoleOptions


@click.command()
@click.option("--launcher", is_flag=True, help="Choose what to look at first, instead of starting an engine.")
@click.option(
    "--concurrency", type=click.IntRange(min=0), default=16, show_default=True, help="Background load (0: none)."
)
@record_option
@engine_options
def run(launcher: bool, concurrency: int, record: Path | None, engine: EngineChoice) -> None:
    """Start an engine, keep it under load, and watch it in the console.

    Without flags that is a tiny mixture-of-experts model: one pipeline stage a GPU, or a few processes on the CPU.
    The engine ends with the console.

    \b
    Example: herdscope run
             herdscope run --model /models/qwen3-moe --pp 8 --async-depth 8 --admission rebalance
             herdscope run --emulate 8x-rtx-pro-6000 --model kimi-k2.6
    """
    from tui.console.options import ConsoleOptions

    if launcher:
        open_console(ConsoleOptions(concurrency=concurrency, record=record))
    config = engine.config(write_model=False)
    tiny = engine.model_is_tiny
    open_console(ConsoleOptions(engine=config, concurrency=concurrency, prepare_model=tiny, record=record))


def open_console(options: ConsoleOptions) -> None:
    """Run the console on this terminal and exit with its code."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.ClickException("the console needs a terminal (bench, load, probe and replay --headless do not)")
    import msgspec

    from tui.cli.config_file import keymap
    from tui.cli.lazy_group import LazyGroup
    from tui.console.actions import BY_ID
    from tui.console.app import run_console

    root = click.get_current_context().find_root().command
    assert isinstance(root, LazyGroup)
    raise SystemExit(run_console(msgspec.structs.replace(options, keymap=keymap(root, BY_ID))))
