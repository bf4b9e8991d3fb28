"""The event log: what changed, when."""

from __future__ import annotations

from collections.abc import Hashable

from rich.style import Style
from textual.strip import Strip

from tui.console.draw.palette import ACCENT, BAD, DIM, GOOD, TEXT, WARN
from tui.console.draw.row import Row, text_line
from tui.console.draw.units import clock
from tui.console.panels.panel import Panel
from tui.console.store.events import Category

GLYPHS: dict[Category, tuple[str, Style]] = {
    "knob": ("▲", WARN),
    "refused": ("⊘", BAD),
    "fault": ("✗", BAD),
    "engine": ("·", DIM),
    "bench": ("◆", GOOD),
    "load": ("△", DIM),
    "alert": ("!", BAD),
    "note": ("·", DIM),
    "verdict": ("●", ACCENT),
}


class EventLogPanel(Panel):
    """The newest events, the last at the bottom."""

    HELP_TEXT = "Knob changes, refusals with their reason, faults, benchmark points and notes, with the session's time."

    def key(self) -> Hashable:
        return (self.store.events_version, self.store.session)

    def title(self) -> str:
        return "Events"

    def rows(self, width: int, height: int) -> list[Strip]:
        events = list(self.store.events)[-height:]
        if not events:
            return [text_line(width, " Nothing happened yet.", DIM)]
        strips = []
        for event in events:
            glyph, style = GLYPHS[event.category]
            row = Row().add(f" {clock(event.t_ns - self.store.began_ns)} ", DIM).add(f"{glyph} ", style)
            strips.append(row.add(event.text, BAD if event.category in ("fault", "refused") else TEXT).strip(width))
        return strips
