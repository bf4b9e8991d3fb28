"""The words and figures of a comparison, the same in every form it is shown in."""

from __future__ import annotations

from sessions.bench.text import number
from sessions.compare.compare import Comparison, PairComparison, Row, Side

MOST_DIFFERENCES = 12


def method(comparison: Comparison) -> str:
    """One sentence on how the verdicts were reached."""
    return (
        f"Medians over repetitions with 95 % intervals (order statistics; they need 6). Ratios: Hodges-Lehmann. "
        f"Verdicts: Mann-Whitney, exact, Holm over {comparison.tests} rows, level {comparison.alpha:g}; "
        f"~ is not significant. Any verdict needs {comparison.fewest} repetitions a side."
    )


def side(value: Side) -> str:
    """A median with its interval, where there is one."""
    if value.low is None or value.high is None:
        return number(value.median)
    return f"{number(value.median)} [{number(value.low)}, {number(value.high)}]"


def ratio(row: Row) -> str:
    """The ratio with its interval, where there is one."""
    if row.ratio is None:
        return "-"
    if row.ratio_low is None or row.ratio_high is None:
        return f"{row.ratio:.3f}x"
    return f"{row.ratio:.3f}x [{row.ratio_low:.3f}, {row.ratio_high:.3f}]"


def evidence(row: Row) -> str:
    """p and the number of repetitions."""
    count = f"n={row.base.repetitions}+{row.other.repetitions}"
    return count if row.p_holm is None else f"p={row.p_holm:.3g} {count}"


def advice(row: Row, comparison: Comparison) -> str:
    """For a row without a verdict: what it would take to reach one."""
    if row.verdict != "~":
        return ""
    fewest_here = min(row.base.repetitions, row.other.repetitions)
    if fewest_here < comparison.fewest:
        return f"repeat at least {max(comparison.fewest, row.needed or 0)} times"
    parts = [f"about {row.needed} repetitions would show this"] if row.needed else []
    if row.detectable is not None:
        parts.append(f"{(row.detectable - 1):.1%} or more would have been seen")
    return "; ".join(parts)


def differing(pair: PairComparison) -> list[str]:
    """What else differed, a line each; the knobs first."""
    lines = [f"{each.what}: {each.base} -> {each.other}" for each in pair.differences]
    if len(lines) > MOST_DIFFERENCES:
        lines = [*lines[:MOST_DIFFERENCES], f"and {len(lines) - MOST_DIFFERENCES} more (--json has all)"]
    return lines
