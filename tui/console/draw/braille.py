"""Filled charts in braille: two columns and four rows of dots a cell."""

from __future__ import annotations

import math
from collections.abc import Sequence

TOPS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)


def area(values: Sequence[float | None], height: int, top: float) -> list[str]:
    """Fill under `values` (two a cell, None is a gap) in `height` lines, the first line on top; `top` is full height.

    A value above 0 shows at least one dot, so that little is not taken for nothing.
    """
    dots = [_dots(value, height, top) for value in values]
    if len(dots) % 2:
        dots.append(0)
    lines = []
    for line in range(height):
        base = (height - 1 - line) * 4
        lines.append(
            "".join(
                chr(0x2800 | _LEFT[min(4, max(0, left - base))] | _RIGHT[min(4, max(0, right - base))])
                for left, right in zip(dots[::2], dots[1::2], strict=True)
            )
        )
    return lines


def nice_top(at_least: float) -> float:
    """The smallest round figure that is at least `at_least`, for the top of an axis."""
    power = 10.0 ** math.floor(math.log10(at_least))
    return next(factor * power for factor in TOPS if factor * power >= at_least)


def _dots(value: float | None, height: int, top: float) -> int:
    if value is None or value <= 0 or top <= 0:
        return 0
    return max(1, min(height * 4, round(value / top * height * 4)))
