"""What happened, for the event log and the marks on every time line."""

from __future__ import annotations

from typing import Literal, NamedTuple

from sessions.knobs import KNOB_NAMES, Knobs, KnobValue

Category = Literal["knob", "refused", "fault", "engine", "bench", "load", "alert", "note", "verdict", "align"]


class Event(NamedTuple):
    """One line of the event log, at `t_ns` of the session's clock."""

    t_ns: int
    category: Category
    text: str


def knob_changes(before: Knobs, after: Knobs) -> list[str]:
    """One line for each knob that differs."""
    lines = []
    for name in KNOB_NAMES:
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            lines.append(f"{name} {knob_text(old)} → {knob_text(new)}")
    return lines


def knob_text(value: KnobValue) -> str:
    """A knob's value as people write it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
