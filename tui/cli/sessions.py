"""`herdscope sessions`: what is recorded, and what to do with it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tui.cli.instants import recording_argument
from tui.cli.output import json_option, note, print_json

if TYPE_CHECKING:
    from sessions.recording.library import Summary

folder_argument = click.argument("folder", required=False, type=click.Path(file_okay=False, path_type=Path))
_SIZES = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_AGES = {"h": 3600, "d": 86400, "w": 604800}


@click.group()
def sessions() -> None:
    """List, describe, tag, check, merge and prune recordings.

    \b
    Example: herdscope sessions list
    """


@sessions.command("list")
@folder_argument
@json_option
def list_(folder: Path | None, as_json: bool) -> None:
    """List the recordings of a folder (default: this user's).

    \b
    Example: herdscope sessions list
             herdscope sessions list ./recordings --json
    """
    from sessions.recording.library import find, recordings_folder, summarise

    place = folder or recordings_folder()
    summaries = [summarise(path) for path in find(place)]
    if as_json:
        print_json(summaries)
    elif summaries:
        click.echo(_table(summaries))
    else:
        note(f"no recordings in {place}")


@sessions.command()
@recording_argument
@json_option
def show(recording: str, as_json: bool) -> None:
    """Say everything that a recording says about itself, with its marks.

    \b
    Example: herdscope sessions show tonight.herd
    """
    from sessions.recording.library import details
    from sessions.recording.reader import Recording

    about = details(Path(recording))
    with Recording(recording) as opened:
        start, marks = opened.extent()[0], opened.marks()
    if as_json:
        print_json({"details": about, "marks": marks})
        return
    summary, engine = about.summary, about.engine
    rows = [
        ("recording", summary.path),
        ("title", summary.title),
        ("started (UTC)", _utc(summary.started_utc)),
        ("duration", f"{summary.seconds:.1f} s"),
        ("state", f"{summary.state}: {about.ending}"),
        ("host", about.origin.host),
        ("command", " ".join(about.origin.command_line)),
        ("versions", ", ".join(f"{name} {version}" for name, version in about.origin.versions.items())),
        ("model", summary.model + (" (EMULATED)" if summary.emulated else "")),
        ("stages", str(engine.stages) if engine.stages else ""),
        (
            "knobs",
            ", ".join(f"{k}={getattr(about.knobs, k)}" for k in about.knobs.__struct_fields__) if about.knobs else "",
        ),
        ("messages", f"{summary.messages} in {about.segments} segments, {summary.bytes / 1e6:.1f} MB"),
        ("sources", ", ".join(about.sources)),
        ("tags", ", ".join(summary.tags)),
    ]
    click.echo("\n".join(f"{name:14} {value}" for name, value in rows if value))
    for text in about.notes:
        click.echo(f"{'note':14} {text}")
    for number, mark in enumerate(marks, 1):
        click.echo(f"{f'mark:{number}':14} {(mark.t_ns - start) / 1e9:8.1f} s {mark.category:8} {mark.text}")


@sessions.command()
@recording_argument
@click.argument("text", required=False)
@click.option("--title", help="Set the title.")
def annotate(recording: str, text: str | None, title: str | None) -> None:
    """Add a note to a recording, or give it a title; also while it is being written.

    \b
    Example: herdscope sessions annotate tonight.herd "the fan of GPU 3 failed" --title "Monday, before the fix"
    """
    from sessions.recording.library import annotate as write

    if text is None and title is None:
        raise click.UsageError("nothing to write: give a text, or --title")
    write(Path(recording), text, title)


@sessions.command()
@recording_argument
@click.argument("tags", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Remove these tags instead of adding them.")
def tag(recording: str, tags: tuple[str, ...], remove: bool) -> None:
    """Add tags to a recording, or remove them. Tagged recordings are never pruned.

    \b
    Example: herdscope sessions tag tonight.herd baseline keep
    """
    from sessions.recording.library import tag as write

    notes = write(Path(recording), () if remove else tags, tags if remove else ())
    note(f"tags: {', '.join(notes.tags) or 'none'}")


@sessions.command()
@folder_argument
@click.option(
    "--older-than", metavar="AGE", callback=lambda c, p, v: _amount(v, _AGES, "12h, 30d, 4w"), help="As 12h, 30d, 4w."
)
@click.option("--keep", type=click.IntRange(min=0), help="All but the newest N.")
@click.option(
    "--max-size", metavar="SIZE", callback=lambda c, p, v: _amount(v, _SIZES, "500MB, 20GB"), help="As 500MB, 20GB."
)
@click.option("--yes", is_flag=True, help="Delete; without it only say what would be deleted.")
@json_option
def prune(
    folder: Path | None, older_than: float | None, keep: int | None, max_size: float | None, yes: bool, as_json: bool
) -> None:
    """Delete finished, untagged recordings over a limit, oldest first.

    \b
    Example: herdscope sessions prune --older-than 30d --max-size 20GB
             herdscope sessions prune --keep 20 --yes
    """
    from sessions.recording.library import prunable, recordings_folder

    if older_than is None and keep is None and max_size is None:
        raise click.UsageError("give a limit: --older-than, --keep or --max-size")
    place = folder or recordings_folder()
    chosen = prunable(place, time.time(), older_than, keep, None if max_size is None else int(max_size))
    if yes:
        for one in chosen:
            Path(one.path).unlink(missing_ok=True)
    if as_json:
        print_json({"deleted": yes, "recordings": chosen})
        return
    if chosen:
        click.echo(_table(chosen))
    size = sum(one.bytes for one in chosen) / 1e6
    note(
        f"{'deleted' if yes else 'would delete'} {len(chosen)} recordings, {size:.1f} MB"
        + ("" if yes or not chosen else "; --yes does it")
    )


@sessions.command()
@click.argument("recordings", nargs=-1, required=True, type=click.Path(dir_okay=False))
@json_option
@click.pass_context
def verify(ctx: click.Context, recordings: tuple[str, ...], as_json: bool) -> None:
    """Check that recordings are whole; exit code 1 when one is not.

    \b
    Example: herdscope sessions verify *.herd
    """
    from sessions.recording.errors import RecordingError
    from sessions.recording.verify import Verdict
    from sessions.recording.verify import verify as check

    verdicts = []
    for path in recordings:
        try:
            verdicts.append(check(path))
        except RecordingError as error:
            bad = Verdict(path=path, messages=0, segments=0, seconds=0.0, problems=[str(error)], unknown_kinds={})
            verdicts.append(bad)
    if as_json:
        print_json(verdicts)
    for verdict in verdicts if not as_json else ():
        found = "; ".join(verdict.problems) or "whole"
        click.echo(f"{verdict.path}: {found} ({verdict.messages} messages, {verdict.seconds:.1f} s)")
    if any(verdict.problems for verdict in verdicts):
        ctx.exit(1)


@sessions.command()
@click.argument("recordings", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--output", "-o", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The new recording."
)
@json_option
def merge(recordings: tuple[Path, ...], output: Path, as_json: bool) -> None:
    """Make one recording out of several hosts' ones, on one clock.

    \b
    Example: herdscope sessions merge host-a.herd host-b.herd -o both.herd
    """
    from sessions.recording.merge import merge as join

    merged = join(recordings, output)
    if as_json:
        print_json(merged)
        return
    note(f"wrote {merged.path}: {merged.messages} messages, {merged.duplicates} taken by two recorders kept once")
    for name, offset in merged.offsets_s.items():
        note(f"  clock of {name} moved by {offset:+.6f} s")


def _table(summaries: Sequence[Summary]) -> str:
    lines = [f"{'started (UTC)':19}  {'length':>8}  {'size':>8}  {'model':16}  {'state':10}  name"]
    for one in summaries:
        name = Path(one.path).name + (f"  {one.title}" if one.title else "") + "".join(f" #{tag}" for tag in one.tags)
        if one.state == "unreadable":
            name = f"{name}  ({one.why})"
        model = one.model[:16] + (" E" if one.emulated else "")
        size = f"{one.bytes / 1e6:5.1f} MB"
        lines.append(f"{_utc(one.started_utc):19}  {one.seconds:6.0f} s  {size}  {model:16}  {one.state:10}  {name}")
    return "\n".join(lines)


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%d %H:%M:%S") if seconds else "-"


def _amount(text: str | None, units: dict[str, int], example: str) -> float | None:
    if text is None:
        return None
    lower = text.strip().lower()
    for unit, size in units.items():
        number = lower.removesuffix(unit).strip()
        if lower.endswith(unit) and number.replace(".", "", 1).isdigit():
            return float(number) * size
    raise click.BadParameter(f"{text!r} is not an amount such as {example}")
