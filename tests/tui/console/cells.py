"""What a terminal shows, cell by cell."""

from __future__ import annotations

from typing import NamedTuple

from rich.color import Color
from textual.geometry import Region

from tui.console.app import ConsoleApp


class Look(NamedTuple):
    """One cell: its character and how it is drawn. What a click there does is no part of the look."""

    char: str
    colour: Color | None
    background: Color | None
    attributes: tuple[bool | None, ...]


Cells = list[list[Look]]


def screen_cells(app: ConsoleApp) -> Cells:
    """Every line of the terminal."""
    lines = []
    for strip in app.screen._compositor.render_strips():
        line: list[Look] = []
        for text, style, _ in strip:
            assert style is not None
            attributes = (style.bold, style.dim, style.italic, style.underline, style.reverse, style.strike)
            line += [Look(char, style.color, style.bgcolor, attributes) for char in text]
        lines.append(line)
    return lines


def region_of(cells: Cells, region: Region) -> Cells:
    """The cells of a part of the terminal."""
    return [line[region.x : region.right] for line in cells[region.y : region.bottom]]


def text_of(cells: Cells) -> list[str]:
    """The characters alone."""
    return ["".join(look.char for look in line) for line in cells]
