"""A report that a person attaches to a bug report or a review: Markdown, or one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Literal

from sessions.export.errors import ExportError
from sessions.export.findings import Findings, findings
from sessions.export.svg import Bar, Line, Series, line_chart, swimlanes
from sessions.recording.reader import Recording

MAX_MARKS = 200
_CHARTS = (
    ("Throughput", "tok/s", ("tokens_per_s",)),
    ("Power of all GPUs", "W", ("watts",)),
    ("Waves (N_eff)", "", ("waves",)),
    ("Requests", "", ("running", "waiting")),
    ("Stage occupancy", "", ("occupancy",)),
)
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 900px; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .2rem .7rem; text-align: right; }
th:first-child, td:first-child { text-align: left; } tr + tr { border-top: 1px solid #8884; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } svg { width: 100%; height: auto; }
.emulated { border: 1px solid; padding: .2rem .6rem; display: inline-block; font-weight: 600; }
code { overflow-wrap: anywhere; }
"""

Form = Literal["html", "markdown"]
Cells = Sequence[Sequence[str]]


def write_report(
    recording: Recording,
    path: Path,
    form: Form = "html",
    start_ns: int | None = None,
    end_ns: int | None = None,
) -> None:
    """Write the report of an interval (arrivals; default: all). Raise ExportError, RecordingError."""
    found = findings(recording, start_ns, end_ns)
    text = html(found) if form == "html" else markdown(found)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error.strerror}") from None


def markdown(found: Findings) -> str:
    """The report as Markdown."""
    parts = [f"# {_title(found)}\n"]
    if _emulated(found):
        parts.append("**EMULATED**: these figures come from a model of the hardware, not from hardware.\n")
    for heading, header, rows in _tables(found):
        if rows:
            parts.append(f"## {heading}\n\n{_markdown_table(header, rows)}\n")
    if found.notes.notes:
        parts.append("## Notes\n\n" + "\n".join(f"- {_inline(note)}" for note in found.notes.notes) + "\n")
    if found.problems:
        parts.append("## Damage\n\n" + "\n".join(f"- {_inline(problem)}" for problem in found.problems) + "\n")
    return "\n".join(parts)


def html(found: Findings) -> str:
    """The report as one HTML document with inline charts."""
    title = escape(_title(found))
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body><h1>{title}</h1>'
    ]
    if _emulated(found):
        parts.append('<p class="emulated">EMULATED: from a model of the hardware, not from hardware</p>')
    tables = _tables(found)
    parts += [_html_table(*table) for table in tables[:2]]
    parts += _charts(found)
    parts += [_html_table(*table) for table in tables[2:]]
    for heading, items in (("Notes", found.notes.notes), ("Damage", found.problems)):
        if items:
            parts.append(f"<h2>{heading}</h2><ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>")
    return "".join([*parts, "</body></html>\n"])


def _charts(found: Findings) -> list[str]:
    parts: list[str] = []
    marks = [Line((mark.t_ns - found.start_ns) / 1e9, mark.text) for mark in found.marks[:MAX_MARKS]]
    for title, unit, fields in _CHARTS:
        series = [
            Series(field, [((r.t_ns - found.start_ns) / 1e9, getattr(r, field)) for r in found.rollups])
            for field in fields
        ]
        if any(value is not None for one in series for _, value in one.points):
            parts.append(f"<h2>{escape(title)}</h2>{line_chart(title, unit, series, marks)}")
    if found.lanes:
        lanes = [
            (
                f"stage {lane.stage}",
                [
                    Bar(start / 1e6, end / 1e6, slot, f"slot {slot}, step {step}, {decode} decode requests")
                    for start, end, slot, step, decode in lane.spans
                ],
            )
            for lane in found.lanes
        ]
        title = "Stages in the middle of the recording, coloured by slot"
        parts.append(f"<h2>{title}</h2>{swimlanes(title, lanes)}")
    return parts


def _tables(found: Findings) -> list[tuple[str, Sequence[str], Cells]]:
    return [
        ("Session", ("what", "value"), _session_rows(found)),
        ("Means", ("metric", "value"), _mean_rows(found)),
        (
            "Stages (means a micro-batch)",
            ("rank", "stage", "batches", "occupancy", "compute ms", "wait ms", "launch ms", "send ms", "decode"),
            [
                (
                    str(s.rank), str(s.stage), str(s.micro_batches), f"{s.occupancy:.0%}", f"{s.compute_ms:.3f}",
                    f"{s.wait_ms:.3f}", f"{s.launch_gap_ms:.3f}", f"{s.send_ms:.3f}", f"{s.decode:.1f}",
                )
                for s in found.stages
            ],
        ),
        (
            "GPUs",
            ("GPU", "name", "mean W", "max W", "limit W", "energy kJ"),
            [
                (
                    str(g.index), g.name + (" (EMULATED)" if g.emulated else ""), _shown(g.mean_watts),
                    _shown(g.max_watts), _shown(g.limit_watts),
                    _shown(None if g.energy_joules is None else g.energy_joules / 1e3, ".2f"),
                )
                for g in found.gpus
            ],
        ),
        ("Benchmark runs", ("run", "C", "tok/s", "TTFT p50 ms", "ITL p50 ms", "waves"), _bench_rows(found)),
        (
            "Marks",
            ("at", "category", "what"),
            [
                (f"{(mark.t_ns - found.start_ns) / 1e9:.1f} s", mark.category, mark.text)
                for mark in found.marks[:MAX_MARKS]
            ],
        ),
    ]  # fmt: skip


def _session_rows(found: Findings) -> Cells:
    engine = found.engine
    started = datetime.fromtimestamp(found.started_utc_ns / 1e9, tz=UTC)
    rows = [
        ("recording", found.name),
        ("started (UTC)", started.strftime("%Y-%m-%d %H:%M:%S")),
        ("duration", f"{found.seconds:.1f} s"),
        ("host", found.origin.host),
        ("messages", str(found.messages)),
        ("command", " ".join(found.origin.command_line)),
        ("versions", ", ".join(f"{name} {version}" for name, version in found.origin.versions.items())),
    ]
    if engine.model is not None:
        model = engine.model
        experts = f"{model.experts} experts, {model.experts_per_token} a token"
        rows.append(("model", f"{model.name} ({model.architecture}, {model.layers} layers, {experts}, {model.dtype})"))
        rows.append(("stages", str(engine.stages)))
    if engine.hardware:
        rows.append(("hardware", engine.hardware))
    if engine.knobs is not None:
        knobs = engine.knobs
        rows.append(("knobs at the end", ", ".join(f"{k}={getattr(knobs, k)}" for k in knobs.__struct_fields__)))
    if found.notes.tags:
        rows.append(("tags", ", ".join(found.notes.tags)))
    return [row for row in rows if row[1]]


def _mean_rows(found: Findings) -> Cells:
    metrics = (
        ("output tok/s", "tokens_per_s", ".1f"),
        ("power of all GPUs, W", "watts", ".0f"),
        ("waves (N_eff)", "waves", ".2f"),
        ("herd index H", "herd_index", ".3f"),
        ("running requests", "running", ".1f"),
        ("waiting requests", "waiting", ".1f"),
        ("stage occupancy", "occupancy", ".1%"),
    )
    rows = [(label, _shown(found.mean(field), form)) for label, field, form in metrics]
    tokens, watts = found.mean("tokens_per_s"), found.mean("watts")
    if tokens and watts:
        rows.append(("energy a token, J", f"{watts / tokens:.2f}"))
    return rows


def _bench_rows(found: Findings) -> Cells:
    return [
        (
            result.run + (" (EMULATED)" if result.emulated else ""),
            str(point.concurrency),
            f"{point.output_tokens_per_s:.1f}",
            _shown(point.ttft_ms.p50, ".1f"),
            _shown(point.itl_ms.p50, ".2f"),
            _shown(point.waves, ".2f"),
        )
        for result in found.benches
        for point in result.points
    ]


def _title(found: Findings) -> str:
    return found.notes.title or f"Herdscope session {found.name}"


def _emulated(found: Findings) -> bool:
    return found.engine.emulated or any(gpu.emulated for gpu in found.gpus)


def _shown(value: float | None, form: str = ".0f") -> str:
    return "n/a" if value is None else format(value, form)


def _markdown_table(header: Sequence[str], rows: Cells) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_inline(cell) for cell in line) + " |" for line in lines)


def _inline(text: str) -> str:
    """Text that stays one table cell and starts no markup."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _html_table(heading: str, header: Sequence[str], rows: Cells) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<h2>{escape(heading)}</h2><table><tr>{head}</tr>{body}</table>"
