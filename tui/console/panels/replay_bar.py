"""The scrub bar of a replay: where it stands, how fast it goes, the throughput over time and the marks."""

from __future__ import annotations

from collections.abc import Hashable

from textual import events
from textual.message import Message
from textual.strip import Strip

from tui.console.draw.bars import upright
from tui.console.draw.palette import ACCENT, BAD, DIM, FAINT, GOOD, KEY, STRONG, WARN, clickable
from tui.console.draw.row import Row
from tui.console.draw.units import clock
from tui.console.panels.panel import Panel

MARK_INKS = {"knob": WARN, "alert": BAD, "bench": GOOD, "verdict": ACCENT, "note": DIM}
EDGE = 12
SECOND_NS = 1_000_000_000


class ReplayBar(Panel, can_focus=False):
    """Two lines: the throughput second by second with the place shown, and marks with the times and keys."""

    LINES = 2

    class Sought(Message):
        """The bar was clicked: `share` (0 to 1) of the recording."""

        def __init__(self, share: float) -> None:
            super().__init__()
            self.share = share

    def key(self) -> Hashable:
        return (self.view.replay, self.view.span)

    def rows(self, width: int, height: int) -> list[Strip]:
        state = self.view.replay
        if state is None:
            return []
        cells = max(1, width - 2 * EDGE)
        span = max(1, state.end_ns - state.start_ns)
        at = min(cells - 1, (state.position_ns - state.start_ns) * cells // span)
        first = Row().add(f" {'▶' if state.playing else '‖'} ", clickable(KEY, "view.freeze"))
        first.add(f"{clock(state.position_ns - state.start_ns)}", STRONG).to(EDGE)
        levels = self._levels(cells, span)
        for column, char in enumerate(upright(levels, 1)[0]):
            if column == at:
                first.add("┃", STRONG)
            else:
                first.add(char if char != " " else "·", ACCENT if char != " " else FAINT)
        first.add(f" {clock(span)}", DIM)
        return [first.strip(width), self._marks_row(width, cells, span)]

    def _levels(self, cells: int, span: int) -> list[float]:
        """Throughput of each cell (0 to 1): the largest of the seconds that it touches."""
        state = self.view.replay
        assert state is not None
        most = [0.0] * cells
        for t_ns, rate in state.rates:
            first = (t_ns - state.start_ns) * cells // span
            last = (t_ns + SECOND_NS - 1 - state.start_ns) * cells // span
            for column in range(max(0, first), min(cells - 1, last) + 1):
                most[column] = max(most[column], rate)
        top = max(most, default=0.0) or 1.0
        return [value / top for value in most]

    def _marks_row(self, width: int, cells: int, span: int) -> Strip:
        state = self.view.replay
        assert state is not None
        row = Row()
        row.add(f" {state.speed:g}x ", STRONG)
        row.add("LIVE EDGE" if state.following else "growing" if state.growing else "", GOOD).to(EDGE)
        marks = {(mark.t_ns - state.start_ns) * cells // span: mark for mark in state.marks}
        line = ["─"] * cells
        inks = [FAINT] * cells
        for column in self._chosen(cells, span):
            line[column], inks[column] = "━", ACCENT
        for column in marks:
            if 0 <= column < cells:
                line[column] = "▲"
        for column, char in enumerate(line):
            row.add(char, MARK_INKS.get(marks[column].category, DIM) if char == "▲" else inks[column])
        return row.strip(width)

    def _chosen(self, cells: int, span: int) -> range:
        """The cells of the chosen span; one cell until its end is chosen."""
        state, chosen = self.view.replay, self.view.span
        if state is None or chosen is None:
            return range(0)
        first = (chosen.start_ns - state.start_ns) * cells // span
        last = first if chosen.end_ns is None else (chosen.end_ns - state.start_ns) * cells // span
        return range(max(0, first), min(cells - 1, last) + 1)

    def on_click(self, event: events.Click) -> None:
        cells = max(1, self.content_size.width - 2 * EDGE)
        share = (event.x - EDGE) / cells
        if event.y == 0 and 0 <= share <= 1:
            self.post_message(self.Sought(share))
