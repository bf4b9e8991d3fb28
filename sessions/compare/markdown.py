"""A comparison as Markdown, for a review or a bug report."""

from __future__ import annotations

from collections.abc import Sequence

from sessions.bench.text import number
from sessions.compare.compare import Comparison
from sessions.compare.words import advice, differing, evidence, method, ratio, side


def as_markdown(comparison: Comparison) -> str:
    """The whole comparison."""
    parts: list[str] = []
    for pair in comparison.pairs:
        parts.append(f"### {_cell(pair.base)} → {_cell(pair.other)}")
        parts += [f"> **Warning:** {_cell(warning)}" for warning in pair.warnings]
        metrics = [
            (
                row.load,
                f"{row.name} ({row.unit})",
                side(row.base),
                side(row.other),
                ratio(row),
                f"**{row.verdict}**" if row.verdict != "~" else "~",
                evidence(row),
                advice(row, comparison),
            )
            for row in pair.rows
        ]
        parts.append(_table(("load", "metric", pair.base, pair.other, "ratio", "verdict", "evidence", ""), metrics))
        if pair.differences:
            parts.append("\n".join(["Differs:", "", *(f"- {_cell(line)}" for line in differing(pair))]))
    points = [
        (p.run, p.load, number(p.tokens_per_s_per_user), number(p.tokens_per_s_per_device), "yes" if p.best else "")
        for p in comparison.pareto
    ]
    parts.append(_table(("run", "load", "tok/s per user", "tok/s per device", "on the Pareto front"), points))
    parts.append(method(comparison))
    return "\n\n".join(parts)


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    """Text that cannot break a table or start markup."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
