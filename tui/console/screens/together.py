"""Two recordings side by side, in lock-step from an instant of each."""

from __future__ import annotations

from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical

from tui.console.beside import Beside
from tui.console.panels.aligned import AlignedThroughput, FollowingTimebase, RecordingLine, SharedTimebase
from tui.console.panels.knob_line import KnobLine
from tui.console.panels.stages import StagesPanel
from tui.console.panels.timebase import Timebase
from tui.console.panels.verdict import VerdictPanel
from tui.console.screens.screen import COMPACT_WIDTH, ConsoleScreen
from tui.console.store.store import Store
from tui.console.view import View

BARS, LINES, LEAST_CHART = 2, 5, 5
"""Lines of header and footer; of the text over the graphs in columns; of the smallest chart there."""
DOUBLE_HEIGHT = 50
"""From this height on, each lane has a second line, for the sizes of its micro-batches."""
FOOTER = (
    ("view.freeze", "space", "hold"),
    ("replay.back_10", "←", "10 s"),
    ("replay.on_10", "→", "10 s"),
    ("replay.next_mark", "n", "mark"),
    ("replay.last_mark", "p", "mark"),
    ("replay.faster", "+", "faster"),
    ("replay.slower", "-", "slower"),
)


class TogetherScreen(ConsoleScreen):
    """Columns where there is room, else rows. What moves a replay moves both; zoom and chart length are shared."""

    MODE = "together"
    # Nothing can be turned in a recording, so the keys of knobs, load and launcher are free here.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "app.do('replay.back_10')", "10 s back", show=False),
        Binding("right", "app.do('replay.on_10')", "10 s on", show=False),
        Binding("n", "app.do('replay.next_mark')", "next mark of A", show=False),
        Binding("p", "app.do('replay.last_mark')", "mark of A before", show=False),
        Binding("plus,equals_sign", "app.do('replay.faster')", "faster", show=False),
        Binding("minus", "app.do('replay.slower')", "slower", show=False),
    ]

    def __init__(self, store: Store, view: View, beside: Beside) -> None:
        super().__init__(store, view)
        self._beside = beside

    def compose_body(self) -> ComposeResult:
        beside, view = self._beside, self.view
        base = SharedTimebase(self.store, view, beside)
        first = AlignedThroughput(self.store, view, beside, is_second=False)
        second = AlignedThroughput(beside.store, view, beside, is_second=True)
        first.twin, second.twin = second, first
        with Container(id="together"):
            yield from self._side("A", self.store, beside.store, base, first)
            base_there = FollowingTimebase(beside.store, view, base, beside)
            yield from self._side("B", beside.store, self.store, base_there, second)

    def _side(
        self, which: Literal["A", "B"], store: Store, other: Store, base: Timebase, chart: AlignedThroughput
    ) -> ComposeResult:
        with Vertical(classes="side"):
            yield RecordingLine(store, self.view, self._beside, which)
            yield KnobLine(store, self.view, other)
            yield VerdictPanel(store, self.view, classes="line wraps")
            with Container(classes="graphs"):
                yield StagesPanel(store, self.view, base, classes="box lanes")
                yield chart

    def on_mount(self) -> None:
        self._lanes = 0
        self.query(StagesPanel).first().focus()

    def tick(self) -> None:
        lanes = max(len(self.store.lanes), len(self._beside.store.lanes))
        if lanes != self._lanes:
            self._lanes = lanes
            self.lay_out(self.app.size.width, self.room())
        super().tick()

    def footer_entries(self) -> list[tuple[str, str, str]]:
        return [*super().footer_entries(), *FOOTER]

    def lay_out(self, width: int, height: int) -> None:
        rows = width < COMPACT_WIDTH
        self.query_one("#together").set_class(rows, "rows")
        frame = 1 if self.has_class("compact") else 2
        wanted = self._lanes * (2 if height >= DOUBLE_HEIGHT else 1) + frame
        room = height - BARS - LINES - LEAST_CHART - frame
        for panel in self.query(StagesPanel):
            panel.styles.height = "1fr" if rows or not self._lanes else max(frame + 1, min(wanted, room))
