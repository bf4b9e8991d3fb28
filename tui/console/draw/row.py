"""Builds one line of a panel: text in styles, then a Strip of an exact width."""

from __future__ import annotations

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tui.console.draw.palette import DIM, TEXT


class Row:
    """A line under construction. Text that does not fit is cut at the end, which shows."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self.width = 0

    def add(self, text: str, style: Style = TEXT) -> Row:
        """Append text."""
        if text:
            self._segments.append(Segment(text, style))
            self.width += len(text) if text.isascii() else cell_len(text)
        return self

    def extend(self, other: Row) -> Row:
        """Append another line's text."""
        self._segments.extend(other._segments)
        self.width += other.width
        return self

    def to(self, column: int, style: Style = TEXT) -> Row:
        """Fill with blanks up to `column`; at least one blank when something is there already and it is too long."""
        return self.add(" " * max(1 if self.width else 0, column - self.width), style)

    def right(self, width: int, *parts: tuple[str, Style]) -> Row:
        """Append parts so that they end at `width`."""
        taken = sum(cell_len(text) for text, _ in parts)
        self.to(width - taken)
        for text, style in parts:
            self.add(text, style)
        return self

    def strip(self, width: int, background: Style = TEXT) -> Strip:
        """The line, filled to `width` cells; where it does not fit, cut with an ellipsis."""
        strip = Strip(self._segments, self.width)
        if self.width > width > 0:
            return Strip([*strip.crop(0, width - 1), Segment("…", DIM)], width).simplify()
        return strip.adjust_cell_length(width, background).simplify()


def blank(width: int) -> Strip:
    """An empty line."""
    return Strip.blank(width, TEXT)


def text_line(width: int, text: str, style: Style = TEXT) -> Strip:
    """A line of one text."""
    return Row().add(text, style).strip(width)
