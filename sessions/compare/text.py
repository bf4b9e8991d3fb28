"""A comparison as text for a terminal."""

from __future__ import annotations

from sessions.bench.text import number, table
from sessions.compare.compare import Comparison, PairComparison
from sessions.compare.words import advice, differing, evidence, method, ratio, side


def as_text(comparison: Comparison) -> str:
    """The whole comparison."""
    lines: list[str] = []
    for pair in comparison.pairs:
        lines += [*_pair(pair, comparison), ""]
    if len(comparison.pareto) > 1:
        lines += ["tok/s for a user against tok/s of a device (* no point beats it in both)", *_pareto(comparison), ""]
    return "\n".join([*lines, method(comparison)])


def _pair(pair: PairComparison, comparison: Comparison) -> list[str]:
    heading = ("", "", pair.base, pair.other, "ratio", "", "", "")
    rows = [
        (
            row.load,
            f"{row.name} {row.unit}",
            side(row.base),
            side(row.other),
            ratio(row),
            row.verdict,
            evidence(row),
            advice(row, comparison),
        )
        for row in pair.rows
    ]
    lines = [f"{pair.base} -> {pair.other}", *(f"warning: {warning}" for warning in pair.warnings)]
    lines += table([heading, *rows])
    return lines + [f"differs  {line}" for line in differing(pair)]


def _pareto(comparison: Comparison) -> list[str]:
    heading = ("run", "load", "tok/s/user", "tok/s/device", "J/token", "")
    rows = [
        (
            point.run,
            point.load,
            number(point.tokens_per_s_per_user),
            number(point.tokens_per_s_per_device),
            number(point.joules_per_token),
            "*" if point.best else "",
        )
        for point in comparison.pareto
    ]
    return table([heading, *rows])
