"""`herdscope replay`: show a recording, or stream it to a program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tui.cli.instants import from_option, interval, recording_argument, until_option
from tui.cli.output import note

if TYPE_CHECKING:
    from sessions.messages import Message
    from sessions.recording.reader import Recording


@click.command()
@recording_argument
@click.argument("beside", required=False, type=click.Path(dir_okay=False))
@click.option("--headless", is_flag=True, help="Stream the messages to standard output instead of showing them.")
@click.option("--json", "as_json", is_flag=True, help="The same as --headless: one JSON object a line.")
@from_option
@until_option
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only these kinds of message; may be repeated.")
@click.option("--speed", type=click.FloatRange(0.25, 16), help="Keep the pace of the session, this many times as fast.")
@click.option("--follow", is_flag=True, help="Go on while the file is being written.")
@click.option(
    "--align",
    metavar="MARK|TIME",
    help="Lay two recordings over each other at a mark (part of its text, or its number) or a time (90s, 1:30) of each"
    "  [default: the first knob change of each, or the start]",
)
def replay(
    recording: str,
    beside: str | None,
    headless: bool,
    as_json: bool,
    start: Callable[[Recording], int] | None,
    end: Callable[[Recording], int] | None,
    kinds: tuple[str, ...],
    speed: float | None,
    follow: bool,
    align: str | None,
) -> None:
    """Replay a recording in the console (two: side by side), or with --headless as JSON lines.

    \b
    Example: herdscope replay tonight.herd
             herdscope replay before.herd after.herd --align "admission = rebalance"
             herdscope replay tonight.herd --headless --kind gpu_frame --from 1:00 --until 2:00
             herdscope replay tonight.herd --json --speed 1 | my-program
    """
    if not (headless or as_json) and (start or end or kinds or speed or follow):
        raise click.UsageError("--from, --until, --kind, --speed and --follow go with --headless")
    if beside is not None and (headless or as_json):
        raise click.UsageError("--headless streams one recording: leave out the second, or run it twice")
    if align is not None and beside is None:
        raise click.UsageError("--align needs two recordings: herdscope replay A.herd B.herd --align ...")
    if headless or as_json:
        _stream(Path(recording), start, end, kinds, speed, follow)
    else:
        _show(Path(recording), Path(beside) if beside is not None else None, align)


def _show(path: Path, beside: Path | None, align: str | None) -> None:
    from sessions.recording.reader import Recording
    from sessions.replay.alignment import anchors
    from tui.cli.run import open_console
    from tui.console.options import ConsoleOptions

    # What cannot be shown is refused before the console takes the terminal.
    if beside is None:
        Recording(path).close()
    else:
        anchors(path, beside, align)
    open_console(ConsoleOptions(recording=path, beside=beside, align=align))


def _stream(
    path: Path,
    start: Callable[[Recording], int] | None,
    end: Callable[[Recording], int] | None,
    kinds: tuple[str, ...],
    speed: float | None,
    follow: bool,
) -> None:
    from sessions.recording.reader import Recording
    from sessions.replay.headless import json_lines

    chosen = _kinds(kinds)
    with Recording(path) as recording:
        first, last = interval(recording, start, end)
        for line in json_lines(recording, first, last, chosen, speed, follow):
            sys.stdout.buffer.write(line)
            if speed is not None or follow:
                sys.stdout.buffer.flush()
        sys.stdout.buffer.flush()
        for problem in recording.problems:
            note(f"warning: {problem}")


def _kinds(names: tuple[str, ...]) -> list[type[Message]] | None:
    from sessions.messages import KINDS

    for name in names:
        if name not in KINDS:
            raise click.UsageError(f"no kind of message {name!r}: choose from {', '.join(sorted(KINDS))}")
    return [KINDS[name] for name in names] or None
