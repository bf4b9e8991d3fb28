"""A list with a cursor, on the Line API."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from textual import events
from textual.message import Message
from textual.strip import Strip

from tui.console.draw.palette import CURSOR, DIM
from tui.console.draw.row import Row, text_line
from tui.console.panels.panel import Panel


class ListPanel(Panel):
    """Up, down, home, end, the wheel and a click move the cursor; enter or a second click chooses.

    Subclasses give `items` and draw each in `lines_per_item` lines (`item_rows`).
    """

    LINES_PER_ITEM = 1
    EMPTY_TEXT = "Nothing here."

    class Chosen(Message):
        """The item under the cursor was chosen."""

        def __init__(self, panel: ListPanel, index: int) -> None:
            super().__init__()
            self.panel = panel
            self.index = index

        @property
        def control(self) -> ListPanel:
            return self.panel

    def on_mount(self) -> None:
        self.cursor = 0
        self._top = 0

    def items(self) -> list[Any]:
        """What is listed."""
        raise NotImplementedError

    def item_rows(self, item: Any, width: int, selected: bool) -> list[Row]:
        """The lines of one item."""
        raise NotImplementedError

    def key(self) -> Hashable:
        return (self.cursor, self._top, self.has_focus, self.items_key())

    def items_key(self) -> Hashable:
        """What the items depend on."""
        return None

    def rows(self, width: int, height: int) -> list[Strip]:
        items = self.items()
        if not items:
            return [text_line(width, f" {self.EMPTY_TEXT}", DIM)]
        page = max(1, height // self.LINES_PER_ITEM)
        self.cursor = max(0, min(self.cursor, len(items) - 1))
        self._top = max(0, min(self._top, self.cursor, len(items) - page), self.cursor - page + 1)
        strips = []
        for index in range(self._top, min(len(items), self._top + page)):
            selected = index == self.cursor
            for row in self.item_rows(items[index], width, selected):
                strip = row.strip(width)
                strips.append(strip.apply_style(CURSOR) if selected and self.has_focus else strip)
        return strips[:height]

    def move(self, to: int) -> None:
        """Put the cursor on item `to`."""
        self.cursor = max(0, min(to, len(self.items()) - 1))
        self.redraw()

    def on_key(self, event: events.Key) -> None:
        page = max(1, self.content_size.height // self.LINES_PER_ITEM)
        moves = {"up": -1, "down": 1, "pageup": -page, "pagedown": page, "home": -(1 << 30), "end": 1 << 30}
        if event.key in moves:
            self.move(self.cursor + moves[event.key])
        elif event.key == "enter" and self.items():
            self.post_message(self.Chosen(self, self.cursor))
        else:
            return
        event.stop()

    def on_click(self, event: events.Click) -> None:
        index = self._top + (event.y - self.gutter.top) // self.LINES_PER_ITEM
        if 0 <= index < len(self.items()):
            if index == self.cursor and event.chain >= 2:
                self.post_message(self.Chosen(self, index))
            self.move(index)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.move(self.cursor + 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.move(self.cursor - 1)
