"""`herdscope export`: a recording for other tools and for people."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tui.cli.instants import from_option, interval, recording_argument, until_option
from tui.cli.output import json_option, note, print_json

if TYPE_CHECKING:
    from sessions.recording.reader import Recording

FORMATS = ("chrome", "mcap", "parquet", "csv", "html", "markdown")
_BY_SUFFIX = {".json": "chrome", ".mcap": "mcap", ".html": "html", ".htm": "html", ".md": "markdown"}
_SUFFIXES = {"chrome": ".trace.json", "mcap": ".mcap", "parquet": "", "csv": "", "html": ".html", "markdown": ".md"}


@click.command()
@recording_argument
@click.option("--to", "form", type=click.Choice(FORMATS), help="What to write  [default: told from --output's ending]")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="File, or folder for parquet and csv.")
@from_option
@until_option
@json_option
def export(
    recording: str,
    form: str | None,
    output: Path | None,
    start: Callable[[Recording], int] | None,
    end: Callable[[Recording], int] | None,
    as_json: bool,
) -> None:
    """Export a recording: a trace for ui.perfetto.dev, MCAP, Parquet or CSV tables, a report.

    \b
    Example: herdscope export tonight.herd --to chrome
             herdscope export tonight.herd -o report.html --from 1:00 --until 2:30
             herdscope export tonight.herd --to parquet -o tables/
    """
    from sessions.recording.reader import Recording

    source = Path(recording)
    form = form or _form_of(output)
    target = output or source.with_name(source.stem + _SUFFIXES[form])
    with Recording(source) as opened:
        first, last = interval(opened, start, end)
        written = _write(opened, form, target, first, last)
        for problem in opened.problems:
            note(f"warning: {problem}")
    if as_json:
        print_json({"format": form, "path": str(target), "written": written})
    else:
        note(f"wrote {target}: {', '.join(f'{count} {name}' for name, count in written.items())}")


def _form_of(output: Path | None) -> str:
    form = _BY_SUFFIX.get(output.suffix.lower()) if output is not None else None
    if form is None:
        raise click.UsageError(f"say what to write with --to: {', '.join(FORMATS)}")
    return form


def _write(recording: Recording, form: str, target: Path, first: int | None, last: int | None) -> dict[str, int]:
    if form == "chrome":
        from sessions.export.chrome import write_chrome_trace

        return {"events": write_chrome_trace(recording, target, first, last)}
    if form == "mcap":
        from sessions.export.mcap_file import write_mcap

        return {"messages": write_mcap(recording, target, first, last)}
    if form in ("parquet", "csv"):
        from sessions.export.tables import write_tables

        return write_tables(recording, target, "parquet" if form == "parquet" else "csv", first, last)
    from sessions.export.report import write_report

    write_report(recording, target, "html" if form == "html" else "markdown", first, last)
    return {"report": 1}
