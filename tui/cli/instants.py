"""Instants of a recording on the command line: from its start, as a time of day in UTC, or at a mark."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from sessions.recording.reader import Recording

_CLOCK = re.compile(r"(?:(\d+):)?(?:(\d+):)?(\d+(?:\.\d+)?)s?")
_MARK = "mark:"


class Instant(click.ParamType[Callable[["Recording"], int]]):
    """`90`, `1:30`, `1:02:03.5` from the start, UTC like `2026-11-30T21:00:00Z`, `mark:3` for the third mark or
    `mark:TEXT` for the first that says TEXT; gives a function of a recording."""

    name = "[H:]M:S|UTC|mark:N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Callable[[Recording], int]:
        text = str(value)
        match = _CLOCK.fullmatch(text)
        if match:
            first, second, rest = match.groups()
            minutes = int(second if second is not None else first or 0)
            hours = int(first) if second is not None else 0
            nanoseconds = int(((hours * 60 + minutes) * 60 + float(rest)) * 1e9)
            return lambda recording: recording.extent()[0] + nanoseconds
        if text.startswith(_MARK):
            return lambda recording: _mark(recording, text.removeprefix(_MARK))
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"{text!r} is neither a time from the start (1:30) nor UTC (2026-11-30T21:00:00Z) nor a mark (mark:3)",
                param,
                ctx,
            )
        wall_ns = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e9)
        return lambda recording: wall_ns - recording.origin.wall_ns + recording.origin.t_ns


INSTANT = Instant()
from_option = click.option("--from", "start", type=INSTANT, help="Begin here  [default: the start]")
until_option = click.option("--until", "end", type=INSTANT, help="End here  [default: the end]")
recording_argument = click.argument("recording", type=click.Path(dir_okay=False))


def interval(
    recording: Recording,
    start: Callable[[Recording], int] | None,
    end: Callable[[Recording], int] | None,
) -> tuple[int | None, int | None]:
    """The chosen instants of this recording. Raise UsageError when they are the wrong way round."""
    first = start(recording) if start is not None else None
    last = end(recording) if end is not None else None
    if first is not None and last is not None and last < first:
        raise click.UsageError("--until is before --from")
    return first, last


def _mark(recording: Recording, wanted: str) -> int:
    """When the mark of this number (from 1) or text is. Raise UsageError when there is none."""
    marks = recording.marks()
    if wanted.isdecimal():
        if 1 <= int(wanted) <= len(marks):
            return marks[int(wanted) - 1].t_ns
        raise click.UsageError(f"no mark {wanted}: the recording has {len(marks)} (herdscope sessions show lists them)")
    for mark in marks:
        if wanted and wanted.casefold() in mark.text.casefold():
            return mark.t_ns
    raise click.UsageError(f"no mark says {wanted!r}: herdscope sessions show lists them")
