"""What a diagnosis adds to the live screen: the verdict line, and what the throughput and the power should be."""

from __future__ import annotations

from typing import Literal

import msgspec


class VerdictLine(msgspec.Struct, frozen=True):
    """The first verdict in one line. `gain` is (low, high) of the fix's predicted speed-up; `action` names the action
    (see tui.console.actions) that applies the fix here."""

    level: Literal["healthy", "warning", "problem", "unknown"]
    text: str
    fix: str = ""
    gain: tuple[float, float] | None = None
    action: str | None = None


class Expected(msgspec.Struct, frozen=True):
    """Output tokens a second that the hardware should give at this concurrency, with its band; watts by GPU index."""

    low: float
    mid: float
    high: float
    watts: dict[int, float] = {}
