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
@click.option("--headless", is_flag=True, help="Stream the messages to standard output instead of showing them.")
@click.option("--json", "as_json", is_flag=True, help="The same as --headless: one JSON object a line.")
@from_option
@until_option
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only these kinds of message; may be repeated.")
@click.option("--speed", type=click.FloatRange(0.25, 16), help="Keep the pace of the session, this many times as fast.")
@click.option("--follow", is_flag=True, help="Go on while the file is being written.")
def replay(
    recording: str,
    headless: bool,
    as_json: bool,
    start: Callable[[Recording], int] | None,
    end: Callable[[Recording], int] | None,
    kinds: tuple[str, ...],
    speed: float | None,
    follow: bool,
) -> None:
    """Replay a recording in the console, or with --headless as JSON lines.

    \b
    Example: herdscope replay tonight.herd
             herdscope replay tonight.herd --headless --kind gpu_frame --from 1:00 --until 2:00
             herdscope replay tonight.herd --json --speed 1 | my-program
    """
    if not (headless or as_json) and (start or end or kinds or speed or follow):
        raise click.UsageError("--from, --until, --kind, --speed and --follow go with --headless")
    if headless or as_json:
        _stream(Path(recording), start, end, kinds, speed, follow)
    else:
        raise SystemExit(_show(Path(recording)))


def _show(path: Path) -> int:
    from sessions.recording.reader import Recording
    from tui.console.app import run_console
    from tui.console.options import ConsoleOptions

    Recording(path).close()  # a bad file is refused before the console takes the terminal
    return run_console(ConsoleOptions(recording=path))


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
