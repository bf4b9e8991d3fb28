"""An experiment as one HTML file that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from html import escape

from sessions.compare.ab.charts import forest, interaction, over_time, pareto_chart
from sessions.compare.ab.result import AbResult
from sessions.compare.ab.simple import simple_effects
from sessions.compare.ab.text import cell_rows, effect_row, headline, method, tokens_sentence

STYLE = """
:root { --ink: #1b1f24; --paper: #ffffff; --soft: #6a737d; --rule: #d8dee4;
        --c0: #4477aa; --c1: #ee6677; --c2: #228833; --c3: #ccbb44; --c4: #66ccee; --c5: #aa3377; --c6: #8a8a8a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --soft: #9198a1; --rule: #30363d; } }
body { color: var(--ink); background: var(--paper); font: 15px/1.5 system-ui, sans-serif; max-width: 1040px;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.lead { font-size: 1.15rem; } .aside { color: var(--soft); font-size: .9rem; } .warn { border-left: 4px solid var(--c1);
       padding-left: .6rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; } svg text { fill: var(--ink); }
.axis { stroke: var(--soft); } .grid { stroke: var(--rule); } .bar { stroke-width: 3; }
.line { fill: none; stroke-width: 2; }
.good { fill: var(--c2); stroke: var(--c2); } .bad { fill: var(--c1); stroke: var(--c1); }
.note { fill: var(--c0); stroke: var(--c0); } .quiet { fill: var(--c6); stroke: var(--c6); }
svg text.digit { fill: #fff; font-size: 10px; font-weight: 600; }
"""
COLOUR_RULES = "".join(
    f".c{i} {{ fill: var(--c{i}); stroke: none; }} .c{i}.line {{ fill: none; stroke: var(--c{i}); }} " for i in range(7)
)
EFFECT_HEADING = ("effect", "ratio", "verdict", "p, corrected")


def as_html(result: AbResult) -> str:
    """The whole report."""
    first = result.cells[0]
    title = "Experiment: " + " x ".join(factor.knob for factor in result.factors)
    emulated = "EMULATED, computed and not measured. " if first.emulated else ""
    about = (
        f"{emulated}{first.engine.model}, {first.engine.dtype} on {first.engine.device}, pp {first.engine.pp}, "
        f"ep {first.engine.ep}. {first.workload.key}. {first.machine.host}, {first.machine.cpu}, "
        f"{', '.join(first.machine.gpus) or 'no GPU'}. {result.started_utc}, run {result.run}."
    )
    pairs = list(itertools.combinations(range(len(result.factors)), 2))
    parts = [
        f"<h1>{escape(title)}</h1><p class='aside'>{escape(about)}</p>",
        f"<p class='lead'>{escape(headline(result))}</p><p>{escape(tokens_sentence(result))}</p>",
        *(f"<p class='warn'>{escape(warning)}</p>" for warning in result.warnings),
        "<h2>Combinations</h2>",
        _table(list(cell_rows(result))),
    ]
    primary, *others = result.metrics
    parts.append(f"<h2>Effects on {escape(primary.name)} ({escape(primary.unit)})</h2>")
    parts.append(forest(primary.effects))
    parts.append(_table([EFFECT_HEADING, *map(effect_row, primary.effects)]))
    for one, two in pairs:
        parts += [f"<h2>{escape(result.factors[one].knob)} and {escape(result.factors[two].knob)}</h2>"]
        parts.append(interaction(result, one, two))
    simple = simple_effects(result)
    if simple:
        rows = [(each.effect, each.at, f"{each.ratio:.3f}x") for each in simple]
        parts.append(_table([("effect", "at", "ratio"), *rows]))
    parts += ["<h2>Speed for a user against speed of a device</h2>", pareto_chart(result)]
    parts += ["<h2>Every run, in the order it was run</h2>", over_time(result)]
    for metric in others:
        parts.append(f"<h2>Effects on {escape(metric.name)} ({escape(metric.unit)})</h2>")
        parts.append(_table([EFFECT_HEADING, *map(effect_row, metric.effects)]))
        parts.append("<p class='aside'>This metric did not decide when to stop.</p>")
    parts.append(f"<h2>Method</h2><p>{escape(method(result))}</p>")
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{COLOUR_RULES}</style>"
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _table(rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
    return f"<div class='wide'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
