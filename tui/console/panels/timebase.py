"""Which stretch of time the swimlane shows, and how finely."""

from __future__ import annotations

from tui.console.draw.swimlane import nice_ns
from tui.console.store.lanes import Lane
from tui.console.store.store import Store
from tui.console.view import NO_HOLD, View

CELLS_A_SPAN = 4
HOLD_NS = 500_000_000
LAG_NS = 150_000_000
"""Spans arrive in frames of 100 ms: newer time than this is not complete yet."""
DEFAULT_COLUMN_NS = 10_000_000


class Timebase:
    """Start and width of the cells. Follows the spans' length with hysteresis, so that it does not flicker."""

    def __init__(self, store: Store, view: View) -> None:
        self._store = store
        self._view = view
        self._automatic_ns = 0
        self._shown: tuple[int, int, int | None] | None = None
        self._held_since = 0
        self.column_ns = DEFAULT_COLUMN_NS
        self.start_ns = 0
        self.held = False

    def update(self, lanes: list[Lane], count: int) -> None:
        """Choose for `count` cells now."""
        self.column_ns = self._column(lanes)
        window = count * self.column_ns
        self.held = window < NO_HOLD
        frozen = self._view.frozen_ns
        asked = (count, self.column_ns, frozen)
        now = self._store.now_ns
        if self.held and asked == self._shown and (frozen is not None or 0 <= now - self._held_since < HOLD_NS):
            return
        self._shown, self._held_since = asked, now
        end = (frozen if frozen is not None else now) - LAG_NS
        start = (end // self.column_ns) * self.column_ns - window
        self.start_ns = self._trigger(lanes, start, window) if self.held else start

    def _column(self, lanes: list[Lane]) -> int:
        lengths = [length for lane in lanes if (length := lane.typical_span_ns())]
        if lengths:
            ideal = max(lengths) / CELLS_A_SPAN
            if not self._automatic_ns or not 0.4 <= ideal / self._automatic_ns <= 2.5:
                self._automatic_ns = nice_ns(ideal)
        return nice_ns((self._automatic_ns or DEFAULT_COLUMN_NS) * 2.0**self._view.zoom)

    def _trigger(self, lanes: list[Lane], start: int, window: int) -> int:
        """Start where the lowest slot last entered the first stage before `start`, within one window."""
        if not lanes:
            return start
        spans = lanes[0].between(start - window, start + 1)
        lowest = min((span.slot for span in spans), default=None)
        entered = [span.ready for span in spans if span.slot == lowest and span.ready <= start]
        return entered[-1] if entered else start
