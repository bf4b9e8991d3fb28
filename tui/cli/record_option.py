"""The flag that records what a command's channel carries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tui.cli.output import note

if TYPE_CHECKING:
    from sessions.channel.interface import Channel

record_option = click.option(
    "--record",
    metavar="FILE.herd",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Record the session into this file, for herdscope replay.",
)


@contextmanager
def recorded(channel: Channel, path: Path | None) -> Iterator[None]:
    """Record everything that `channel` carries meanwhile; nothing without a path. A recording that ends early (a full
    disk, say) is told, and the command goes on."""
    if path is None:
        yield
        return
    from sessions.recording.recorder import Recorder

    recorder = Recorder(channel, path, on_stop=lambda reason: note(f"the recording ended: {reason}"))
    try:
        yield
    finally:
        recorder.close()
        note(f"recorded to {recorder.path}")
