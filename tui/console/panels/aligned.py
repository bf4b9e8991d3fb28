"""The panels of two recordings side by side: the same stretch of time, at the same scale."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

from textual.strip import Strip

from tui.console.beside import Beside
from tui.console.draw.palette import ACCENT_STRONG, DIM, STRONG, WARN
from tui.console.draw.row import Row
from tui.console.panels.panel import Panel
from tui.console.panels.throughput import ThroughputPanel
from tui.console.panels.timebase import Timebase
from tui.console.store.events import Event
from tui.console.store.lanes import Lane
from tui.console.store.store import Store
from tui.console.view import View

TENTH_NS = 100_000_000


class SharedTimebase(Timebase):
    """That of the first swimlane: its cells suit the micro-batches of both."""

    def __init__(self, store: Store, view: View, beside: Beside) -> None:
        super().__init__(store, view)
        self._beside = beside

    def typical_spans(self, lanes: list[Lane], until_ns: int) -> list[int]:
        beside = self._beside
        there = super().typical_spans(beside.store.ranked_lanes(), until_ns + beside.offset_ns())
        return super().typical_spans(lanes, until_ns) + there


class FollowingTimebase(Timebase):
    """That of the second swimlane: the stretch that the first one shows, on the second's clock."""

    def __init__(self, store: Store, view: View, leader: Timebase, beside: Beside) -> None:
        super().__init__(store, view)
        self._leader = leader
        self._beside = beside

    def update(self, lanes: list[Lane], count: int) -> None:
        """Take what the first one chose."""
        self.held, self.column_ns = self._leader.held, self._leader.column_ns
        self.start_ns = self._leader.start_ns + self._beside.offset_ns()


class AlignedThroughput(ThroughputPanel):
    """Ends at the instant shown, whether there are samples or not; its scale suits both charts (`twin`)."""

    twin: AlignedThroughput | None = None
    HELP_TEXT = ThroughputPanel.HELP_TEXT + " ┃ is the instant at which the two recordings are laid over each other."

    def __init__(self, store: Store, view: View, beside: Beside, is_second: bool) -> None:
        super().__init__(store, view, classes="box chart")
        self._beside = beside
        self._is_second = is_second

    def key(self) -> Hashable:
        twin = self.twin.own_key() if self.twin is not None else None
        return (self.own_key(), twin)

    def own_key(self) -> Hashable:
        """What this chart's own values depend on."""
        return (super().key(), self.end_ns() // TENTH_NS)

    def end_ns(self) -> int:
        return self._beside.session_now_ns() if self._is_second else self.store.now_ns

    def marked(self) -> list[Event]:
        at_ns, what = self._beside.anchored(self._is_second)
        return [*super().marked(), Event(at_ns, "align", what)]

    def highest(self, cells: int) -> float:
        twin = self.twin.own_highest(cells) if self.twin is not None else 0.0
        return max(self.own_highest(cells), twin)

    def own_highest(self, cells: int) -> float:
        """The largest value of this chart alone."""
        return super().highest(cells)


class RecordingLine(Panel, can_focus=False):
    """Which recording, and the time since the instant at which the two are laid over each other."""

    def __init__(self, store: Store, view: View, beside: Beside, which: Literal["A", "B"]) -> None:
        super().__init__(store, view, classes="line")
        self._beside = beside
        self._which = which

    def key(self) -> Hashable:
        return (self._beside.since_ns // TENTH_NS, self._beside.anchors, self._beside.second, self._out())

    def rows(self, width: int, height: int) -> list[Strip]:
        beside = self._beside
        session = beside.first if self._which == "A" else beside.second
        if session is None or beside.anchors is None:
            return []
        anchor = beside.anchors[0 if self._which == "A" else 1]
        row = Row().add(f" {self._which} ", ACCENT_STRONG).add(session.title, STRONG)
        row.add(f"  {beside.since_ns / 1e9:+.1f} s", STRONG).add(f" from {anchor.what}", DIM)
        if session.failure is not None:
            row.add(f"  {session.failure}", WARN)
        else:
            row.add(self._out(), WARN)
        return [row.strip(width)]

    def _out(self) -> str:
        """Whether the instant shown is outside the second recording (the first is always inside its own)."""
        beside = self._beside
        if self._which == "A" or beside.second is None or beside.anchors is None:
            return ""
        first_ns, last_ns = beside.second.replay.extent_ns
        wanted_ns = beside.anchors[1].t_ns + beside.since_ns
        return "  not begun yet" if wanted_ns < first_ns else "  has ended" if wanted_ns > last_ns else ""
