"""The knobs of one of two recordings in a line or two, those that differ from the other's in another ink."""

from __future__ import annotations

from collections.abc import Hashable

from textual.strip import Strip

from tui.console.draw.palette import DIM, STRONG, WARN
from tui.console.draw.row import Row, text_line
from tui.console.panels.knobs import SHORT_TITLES
from tui.console.panels.panel import Panel
from tui.console.store.events import knob_text
from tui.console.store.store import Store
from tui.console.view import View


class KnobLine(Panel, can_focus=False):
    """`other` is the store of the other recording."""

    def __init__(self, store: Store, view: View, other: Store) -> None:
        super().__init__(store, view, classes="line wraps")
        self._other = other

    def key(self) -> Hashable:
        return (self.store.knobs, self.store.load, self._other.knobs, self._other.load)

    def rows(self, width: int, height: int) -> list[Strip]:
        state, other = self.store.knobs, self._other.knobs
        if state is None:
            return [text_line(width, " No knobs are known yet.", DIM)]
        entries: list[Row] = []
        for name, title in SHORT_TITLES.items():
            value = getattr(state.knobs, name)
            differs = other is not None and getattr(other.knobs, name) != value
            entries.append(Row().add(f" {title} ", DIM).add(knob_text(value), WARN if differs else STRONG))
        load, load_there = self.store.load, self._other.load
        if load is not None and load.concurrency is not None:
            differs = load_there is not None and load_there.concurrency != load.concurrency
            entries.append(Row().add(" load ", DIM).add(f"C {load.concurrency}", WARN if differs else STRONG))
        lines = [Row()]
        for entry in entries:
            if lines[-1].width + entry.width > width and len(lines) < height:
                lines.append(Row())
            lines[-1].extend(entry)
        return [line.strip(width) for line in lines]
