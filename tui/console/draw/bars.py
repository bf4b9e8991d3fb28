"""Horizontal bars with eighth-cell resolution."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style

from tui.console.draw.palette import STRONG, TRACK
from tui.console.draw.row import Row

UPRIGHT = " ▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉"


def bar_text(ratio: float, width: int) -> str:
    """`ratio` (0 to 1) of `width` cells as block characters, without the empty rest."""
    eighths = round(min(1.0, max(0.0, ratio)) * width * 8)
    full, part = divmod(eighths, 8)
    return "█" * full + (EIGHTHS[part] if part else "")


def upright(ratios: Sequence[float], height: int) -> list[str]:
    """One upright bar a ratio (0 to 1), `height` lines tall, the top line first."""
    eighths = [round(min(1.0, max(0.0, ratio)) * height * 8) for ratio in ratios]
    return [
        "".join(UPRIGHT[min(8, max(0, count - 8 * (height - 1 - line)))] for count in eighths) for line in range(height)
    ]


def add_bar(row: Row, ratio: float, width: int, style: Style, mark: float | None = None) -> None:
    """Append a bar of `width` cells to `row`; `mark` (0 to 1) puts a tick where the value should be."""
    filled = bar_text(ratio, width)
    cells = filled + "·" * (width - len(filled))
    if mark is None:
        row.add(filled, style).add(cells[len(filled) :], TRACK)
        return
    at = min(width - 1, max(0, round(mark * width)))
    for position, tick in ((slice(0, at), False), (slice(at, at + 1), True), (slice(at + 1, width), False)):
        part = cells[position]
        if tick:
            row.add("┃", STRONG)
            continue
        solid = part.rstrip("·")
        row.add(solid, style).add(part[len(solid) :], TRACK)
