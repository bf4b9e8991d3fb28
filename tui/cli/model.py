"""`herdscope model`: checkpoints to try things with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tui.cli.output import note

if TYPE_CHECKING:
    from engine.checkpoint.tiny import TinyFamily


@click.group()
def model() -> None:
    """Write checkpoints to try things with."""


@model.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--family",
    type=click.Choice(["qwen3-moe", "deepseek-v3"]),
    default="qwen3-moe",
    show_default=True,
    help="Which architecture.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The same seed, the same bytes.")
def tiny(folder: Path, family: TinyFamily, seed: int) -> None:
    """Write a small random mixture-of-experts checkpoint into FOLDER, which must be new or empty.

    It has config.json, safetensors in several shards with an index, and a tokenizer; transformers loads it too.

    \b
    Example: herdscope model tiny /tmp/tiny && herdscope bench --model /tmp/tiny --pp 4
    """
    from engine.checkpoint.tiny import write_tiny_checkpoint

    if folder.is_dir() and any(folder.iterdir()):
        raise click.UsageError(f"{folder} is not empty: name a new folder")
    shape = write_tiny_checkpoint(folder, family, seed)
    note(f"{family} of {shape.layers} layers and {shape.experts} experts written to {folder}")
