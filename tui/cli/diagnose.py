"""`herdscope diagnose`: why is this slow, from traces, a recording, a metrics scrape or token times."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tui.cli.instants import INSTANT, from_option
from tui.cli.output import json_option, note, print_json

if TYPE_CHECKING:
    from probes.diagnosis.diagnose import Diagnosis
    from probes.diagnosis.score import Score
    from sessions.recording.reader import Recording

    When = Callable[[Recording], int] | None


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
@click.option("--stages", type=click.IntRange(1, 4096), help="Pipeline stages, where the file does not tell them.")
@from_option
@click.option("--to", "--until", "end", type=INSTANT, help="End here  [default: the end]")
@click.option("--at", type=INSTANT, help="What was diagnosed live at this instant of a recording.")
@click.option(
    "--swimlane", type=click.Path(dir_okay=False, path_type=Path), help="Draw who computed when (.svg or .png)."
)
@click.option(
    "--merged",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write one cleaned trace of all ranks on one clock, for ui.perfetto.dev (.json or .json.gz).",
)
def diagnose(
    files: tuple[Path, ...],
    as_json: bool,
    stages: int | None,
    start: When,
    end: When,
    at: When,
    swimlane: Path | None,
    merged: Path | None,
) -> None:
    """Say where the time went, how requests move through the stages, what is wrong and what would fix it.

    FILES are the torch-profiler traces of one run (one a rank, merged, a folder or a tar archive), or one recording
    (.herd), one Prometheus scrape of a server, or one .jsonl of client token times. Of a recording --from and --to
    choose a span, and --at an instant: seconds from its start, UTC, or a mark.

    \b
    Example: herdscope diagnose trace-TP-0-PP-*.json.gz
             herdscope diagnose session.herd --json
             herdscope diagnose session.herd --from 1:30 --to mark:2
             curl -s localhost:30000/metrics > m.txt && herdscope diagnose m.txt
    """
    # numpy starts threads for linear algebra as it is imported; nothing here needs them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from probes.diagnosis.report import as_data, as_text

    for path in files:
        if not path.exists():
            raise click.ClickException(f"{path}: no such file")
    try:
        diagnosis, scores = _diagnosed(files, stages, merged, start, end, at)
        if swimlane is not None:
            _draw(diagnosis, swimlane)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        for text in diagnosis.evidence.notes:
            note(f"note: {text}")
        print_json(as_data(diagnosis, scores))
    else:
        click.echo(as_text(diagnosis, scores))


def _diagnosed(
    files: Sequence[Path], stages: int | None, merged: Path | None, start: When, end: When, at: When
) -> tuple[Diagnosis, list[Score]]:
    from probes.diagnosis.diagnose import diagnose as judge
    from probes.diagnosis.sources import FileKind, kinds_of

    kind = kinds_of(files)
    if merged is not None and kind is not FileKind.TRACE:
        raise click.UsageError("--merged needs traces")
    if kind is FileKind.RECORDING:
        return _of_recording(files[0], stages, start, end, at)
    if start or end or at:
        raise click.UsageError("--from, --to and --at need a recording")
    if kind is FileKind.SCRAPE:
        from probes.diagnosis.from_scrape import evidence_from_scrape

        return judge(evidence_from_scrape(files[0].read_text(errors="replace"), str(files[0]))), []
    if kind is FileKind.TOKENS:
        from probes.diagnosis.from_tokens import evidence_from_tokens

        return judge(evidence_from_tokens(files[0].read_text(errors="replace"), str(files[0]), stages)), []
    from probes.diagnosis.from_traces import evidence_from_traces
    from probes.traces.load import load

    traces = load(files)
    if merged is not None:
        from probes.traces.merged import write_merged

        write_merged(traces, merged)
        note(f"{merged}: open it at https://ui.perfetto.dev")
    return judge(evidence_from_traces(traces)), []


def _of_recording(path: Path, stages: int | None, start: When, end: When, at: When) -> tuple[Diagnosis, list[Score]]:
    from probes.diagnosis.from_recording import diagnose_at, diagnose_recording
    from sessions.recording.reader import Recording

    if at and (start or end):
        raise click.UsageError("--at goes without --from and --to")
    with Recording(path) as recording:
        at_ns, first, last = (when(recording) if when else None for when in (at, start, end))
    if at_ns is not None:
        return diagnose_at(path, at_ns, stages), []
    return diagnose_recording(path, stages, first, last)


def _draw(diagnosis: Diagnosis, path: Path) -> None:
    from probes.diagnosis.swimlane import draw

    draw(diagnosis.evidence, path)
    note(f"{path}: swimlane of {diagnosis.evidence.stages} stages")
