"""What a diagnosis adds to the live screen: the verdict line, and what the throughput and the power should be."""

from __future__ import annotations

from typing import Literal

import msgspec

from sessions.messages import VerdictOn, Verdicts

PROBLEM_GAIN = 1.2
"""A cause whose removal gains at least this much is shown as a problem, less as a warning."""


class VerdictLine(msgspec.Struct, frozen=True):
    """The first verdict in one line. `action` names the action (see tui.console.actions) that applies the fix here."""

    level: Literal["healthy", "warning", "problem", "unknown"]
    text: str
    fix: str = ""
    action: str | None = None


class Expected(msgspec.Struct, frozen=True):
    """Output tokens a second that the hardware should give at this concurrency, with its band; watts by GPU index."""

    low: float
    mid: float
    high: float
    watts: dict[int, float] = {}


def first_cause(verdicts: Verdicts) -> VerdictOn | None:
    """The cause that holds and gains most, if any does."""
    return next((verdict for verdict in verdicts.verdicts if verdict.verdict == "holds"), None)


def verdict_line(verdicts: Verdicts) -> VerdictLine:
    """The diagnosis in one line."""
    cause = first_cause(verdicts)
    headline = verdicts.headline[:1].upper() + verdicts.headline[1:]
    if cause is None:
        unknown = all(verdict.verdict == "unknown" for verdict in verdicts.verdicts)
        return VerdictLine("unknown" if unknown else "healthy", headline)
    gain = cause.gain
    return VerdictLine(
        "problem" if gain is not None and gain.mid >= PROBLEM_GAIN else "warning",
        headline,
        cause.fix,
        "verdict.apply" if cause.knob is not None else None,
    )
