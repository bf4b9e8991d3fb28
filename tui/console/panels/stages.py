"""The swimlane: which micro-batch held which stage, when; the bubble at the edge."""

from __future__ import annotations

from collections.abc import Hashable

from rich.style import Style
from textual import events
from textual.strip import Strip

from tui.console.draw.palette import ACCENT, BAD, DIM, FAINT, GOOD, TEXT, WARN, slot_digit, slot_fill, slot_ink
from tui.console.draw.row import Row, text_line
from tui.console.draw.swimlane import Cell, cells
from tui.console.draw.units import duration, percent
from tui.console.panels.panel import Panel
from tui.console.panels.timebase import LAG_NS, Timebase
from tui.console.store.lanes import Lane, LaneSpan
from tui.console.store.store import Store
from tui.console.view import View

LABEL_WIDTH = 11
EDGE_WIDTH = 6
BUBBLE_WINDOW_NS = 5_000_000_000
BUBBLE_EVERY_NS = 1_000_000_000
SOLID, LITTLE = 0.5, 0.03


class StagesPanel(Panel):
    """One lane a rank, time flowing to the right."""

    HELP_TEXT = (
        "One lane a stage (a rank under ep). A cell carries the colour and digit of the slot whose micro-batch held "
        "the stage; + is prefill, shaded cells were held part of the time, dots are bubble. The figure at the edge is "
        "the bubble over the last 5 s: time without any micro-batch. Windows under 2 s are held still for half a "
        "second and start where the lowest slot enters the first stage, as an oscilloscope's trigger does. "
        "[ and ] zoom, space freezes."
    )

    def __init__(
        self,
        store: Store,
        view: View,
        timebase: Timebase | None = None,
        *,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(store, view, id=id, classes=classes)
        self.timebase = timebase or Timebase(store, view)
        self.first = 0

    def key(self) -> Hashable:
        base, lanes, count = self.timebase, self.store.ranked_lanes(), self._lane_width(self.content_size.width)
        base.update(lanes, count)
        until = base.start_ns + count * base.column_ns
        # A lane is drawn again until everything in the window, and in that of its bubble, has arrived.
        arrived = tuple((min(lane.last_end_ns or 0, until), self._bubble_end(lane)) for lane in lanes)
        return (base.start_ns, base.column_ns, self.first, arrived, self.view.frozen_ns, self.store.engine)

    def _bubble_end(self, lane: Lane) -> int | None:
        """The end of the window of a lane's bubble: when its last span ended, as of the last full second."""
        frozen, now = self.view.frozen_ns, self.store.now_ns
        return lane.ended_by(frozen if frozen is not None else now - now % BUBBLE_EVERY_NS - LAG_NS)

    def title(self) -> str:
        base = self.timebase
        held = "frozen" if self.view.frozen_ns is not None else "held" if base.held else "scrolling"
        window = duration(base.column_ns * self._lane_width(self.content_size.width))
        return f"Stages · {window} window · {duration(base.column_ns)} a cell · {held}"

    def subtitle(self) -> str:
        lanes, height = len(self.store.lanes), self.content_size.height
        more = f"{self.first + 1}-{min(lanes, self.first + height)} of {lanes} ↑↓ · " if lanes > height else ""
        return f"{more}digit = slot · + prefill · dots = bubble"

    def rows(self, width: int, height: int) -> list[Strip]:
        lanes = self.store.ranked_lanes()
        if not lanes:
            return [text_line(width, " No micro-batch yet: the lanes appear with the first request.", DIM)]
        self.first = max(0, min(self.first, len(lanes) - height))
        shown = lanes[self.first : self.first + height]
        tall = height >= 2 * len(lanes)
        strips = []
        for lane in shown:
            count = self._lane_width(width)
            start, column = self.timebase.start_ns, self.timebase.column_ns
            spans = lane.between(start, start + count * column)
            strips.append(self._lane_row(lane, cells(spans, start, column, count), width))
            if tall:
                strips.append(self._size_row(spans, start, column, count, width))
        return strips

    @staticmethod
    def _lane_width(width: int) -> int:
        return max(1, width - LABEL_WIDTH - EDGE_WIDTH)

    def _lane_row(self, lane: Lane, line: list[Cell | None], width: int) -> Strip:
        row = Row()
        name, layers = self._label(lane)
        row.add(f" {name:<3} ", ACCENT).add(layers, DIM).to(LABEL_WIDTH)
        for cell in line:
            text, style = _glyph(cell, self.view.colour)
            row.add(text, style)
        # A steady window for the figure: it may be long past what the lane shows.
        end = self._bubble_end(lane)
        held = lane.occupied(end - BUBBLE_WINDOW_NS, end) if end is not None else None
        bubble = None if held is None else 1 - held
        style = DIM if bubble is None else GOOD if bubble < 0.2 else WARN if bubble < 0.5 else BAD
        row.add(f"{percent(bubble):>{EDGE_WIDTH}}", style)
        return row.strip(width)

    def _size_row(self, spans: list[LaneSpan], start: int, column: int, count: int, width: int) -> Strip:
        row = Row().to(LABEL_WIDTH)
        for span in spans:
            at = LABEL_WIDTH + max(0, (span.ready - start) // column)
            room = (span.end - max(start, span.ready)) // column
            text = f"{span.decode}" if not span.prefill_tokens else f"{span.decode}+{span.prefill_tokens}p"
            if at >= row.width and len(text) <= room and at + len(text) <= LABEL_WIDTH + count:
                row.add(" " * (at - row.width)).add(text, FAINT)
        return row.strip(width)

    def _label(self, lane: Lane) -> tuple[str, str]:
        engine = self.store.engine
        info = next((rank for rank in engine.ranks if rank.rank == lane.rank), None) if engine else None
        if engine is not None and engine.stages <= 1 and len(self.store.lanes) > 1:
            return f"R{lane.rank}", ""
        layers = f"{info.first_layer}-{info.last_layer - 1}" if info and info.last_layer > info.first_layer else ""
        return f"S{lane.stage}", layers[: LABEL_WIDTH - 6]

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.scroll_lanes(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.scroll_lanes(-1)

    def on_key(self, event: events.Key) -> None:
        step = {"down": 1, "up": -1, "pagedown": self.content_size.height, "pageup": -self.content_size.height}
        if event.key in step:
            event.stop()
            self.scroll_lanes(step[event.key])

    def scroll_lanes(self, by: int) -> None:
        """Move the first lane shown."""
        most = max(0, len(self.store.lanes) - self.content_size.height)
        self.first = max(0, min(most, self.first + by))
        self.redraw()


def _glyph(cell: Cell | None, colour: bool) -> tuple[str, Style]:
    if cell is None or cell.share < LITTLE:
        return "·", FAINT
    digit = slot_digit(cell.slot)
    if cell.share >= SOLID:
        filler = "+" if cell.prefill else " " if colour else digit
        return (digit if cell.first else filler), slot_fill(cell.slot)
    if not colour:
        return digit, TEXT
    return "░", slot_ink(cell.slot)
