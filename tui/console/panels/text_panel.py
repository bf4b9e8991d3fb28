"""Lines that scroll."""

from __future__ import annotations

from collections.abc import Hashable

from textual import events
from textual.strip import Strip

from tui.console.panels.panel import Panel


class TextPanel(Panel):
    """Subclasses build all lines (`lines`) whenever what they depend on (`lines_key`) or the width changes."""

    def on_mount(self) -> None:
        self.first = 0
        self._lines: list[Strip] = []
        self._built: Hashable = None

    def lines(self, width: int) -> list[Strip]:
        """Every line."""
        raise NotImplementedError

    def lines_key(self) -> Hashable:
        """What the lines depend on."""
        return None

    def key(self) -> Hashable:
        return (self.lines_key(), self.first)

    def rows(self, width: int, height: int) -> list[Strip]:
        wanted = (width, self.store.epoch, self.lines_key())
        if wanted != self._built:
            self._built = wanted
            self._lines = self.lines(width)
        self.first = max(0, min(self.first, len(self._lines) - height))
        return self._lines[self.first : self.first + height]

    def subtitle(self) -> str:
        hidden = len(self._lines) - self.content_size.height
        return f"{self.first + 1}/{len(self._lines)} ↑↓" if hidden > 0 else ""

    def move(self, by: int) -> None:
        """Scroll by lines."""
        self.first = max(0, self.first + by)
        self.redraw()

    def on_key(self, event: events.Key) -> None:
        page = max(1, self.content_size.height - 1)
        steps = {"up": -1, "down": 1, "pageup": -page, "pagedown": page, "home": -(1 << 30), "end": 1 << 30}
        if event.key in steps:
            event.stop()
            self.move(steps[event.key])

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.move(-3)
