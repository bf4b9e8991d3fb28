"""The base of every panel: lines built from the store at a tick and refreshed only where they changed."""

from __future__ import annotations

from collections.abc import Hashable

from rich.text import Text
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tui.console.draw.row import blank
from tui.console.store.store import Store
from tui.console.view import View


class Panel(Widget, can_focus=True):
    """A titled box of lines on the Line API.

    Subclasses say what their lines depend on (`key`) and build them (`rows`). `tick` is called by the frame clock;
    nothing else redraws a panel.
    """

    HELP_TEXT = ""
    """What the panel shows, for the help screen."""

    def __init__(self, store: Store, view: View, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.store = store
        self.view = view
        self._rows: list[Strip] = []
        self._drawn: Hashable = None
        self._titles = ("", "")

    def key(self) -> Hashable:
        """Everything that the lines depend on besides the panel's size."""
        raise NotImplementedError

    def rows(self, width: int, height: int) -> list[Strip]:
        """At most `height` lines of `width` cells."""
        raise NotImplementedError

    def title(self) -> str:
        """Text of the upper border."""
        return ""

    def subtitle(self) -> str:
        """Text of the lower border."""
        return ""

    def tick(self) -> None:
        """Build the lines anew when what they depend on has changed, and refresh those that differ."""
        width, height = self.content_size
        if not width or not height:
            return
        key = (width, height, self.store.epoch, self.key())
        if key == self._drawn:
            return
        self._drawn = key
        rows = self.rows(width, height)
        titles = (self.title(), self.subtitle())
        if titles != self._titles:
            self._titles = titles
            self.border_title, self.border_subtitle = Text(titles[0]).markup, Text(titles[1]).markup
        before, self._rows = self._rows, rows
        changed = [y for y in range(height) if _line(rows, y) != _line(before, y)]
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def redraw(self) -> None:
        """Forget what was drawn and tick: for changes of the panel's own (cursor, scroll)."""
        self._drawn = None
        self.tick()

    def on_resize(self) -> None:
        self._drawn = None
        self.tick()

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        if y < len(self._rows) and self._rows[y].cell_length == width:
            return self._rows[y]
        return blank(width)


def _line(rows: list[Strip], y: int) -> Strip | None:
    return rows[y] if y < len(rows) else None
