"""Which stretch of time the swimlane shows, and how finely."""

from __future__ import annotations

from tui.console.draw.swimlane import nice_ns
from tui.console.store.lanes import Lane
from tui.console.store.store import Store
from tui.console.view import NO_HOLD, View

CELLS_A_SPAN = 4
HOLD_NS = 500_000_000
SCALE_NS, SCALES = 5_000_000_000, 3
"""The width of a cell is chosen anew this often, for the longest spans at the last few of these instants."""
LAG_NS = 150_000_000
"""Spans arrive in frames of 100 ms: newer time than this is not complete yet."""
DEFAULT_COLUMN_NS = 10_000_000


class Timebase:
    """Start and width of the cells. They follow from the instant shown and the spans then, and from nothing that was
    shown before: a replay that comes to an instant from elsewhere shows what the live session did."""

    def __init__(self, store: Store, view: View) -> None:
        self._store = store
        self._view = view
        self.column_ns = DEFAULT_COLUMN_NS
        self.start_ns = 0
        self.held = False

    def update(self, lanes: list[Lane], count: int) -> None:
        """Choose for `count` cells now."""
        frozen = self._view.frozen_ns
        shown = frozen if frozen is not None else self._store.now_ns
        self.column_ns = self._column(lanes, shown)
        window = count * self.column_ns
        self.held = window < NO_HOLD
        if self.held:
            shown -= shown % HOLD_NS
        start = (shown - LAG_NS) // self.column_ns * self.column_ns - window
        self.start_ns = self._trigger(lanes, start, window) if self.held else start

    def _column(self, lanes: list[Lane], shown_ns: int) -> int:
        grid = shown_ns - shown_ns % SCALE_NS - LAG_NS
        lengths = [length for i in range(SCALES) for length in self.typical_spans(lanes, grid - i * SCALE_NS)]
        lengths = lengths or self.typical_spans(lanes, shown_ns)
        automatic = nice_ns(max(lengths) / CELLS_A_SPAN) if lengths else DEFAULT_COLUMN_NS
        return nice_ns(automatic * 2.0**self._view.zoom)

    def typical_spans(self, lanes: list[Lane], until_ns: int) -> list[int]:
        """The typical length of each lane's last spans at an instant, of the lanes that had any."""
        return [length for lane in lanes if (length := lane.typical_span_ns(until_ns))]

    def _trigger(self, lanes: list[Lane], start: int, window: int) -> int:
        """Start where the lowest slot last entered the first stage before `start`, within one window."""
        if not lanes:
            return start
        spans = lanes[0].between(start - window, start + 1)
        lowest = min((span.slot for span in spans), default=None)
        entered = [span.ready for span in spans if span.slot == lowest and span.ready <= start]
        return entered[-1] if entered else start
