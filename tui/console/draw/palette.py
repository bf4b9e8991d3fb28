"""Colours and styles. Every segment gets one of these: a segment without a style breaks under NO_COLOR.

Slots use the Tol bright scheme, which keeps its seven colours apart for colour-blind readers and in 16-colour
terminals, and an orange, so that the slots of an eight-stage pipeline all differ; a digit always says the same.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from rich.style import Style

BACKGROUND = "#0e1216"
DIM_TEXT = "#8492a0"
TEXT_COLOUR = "#d3dce4"
ACCENT_COLOUR = "#66ccee"
GOOD_COLOUR = "#6cc28a"
WARN_COLOUR = "#ccbb44"
BAD_COLOUR = "#ee6677"


def ink(colour: str, bold: bool = False) -> Style:
    """Text of a colour on the console's background."""
    return Style(color=colour, bgcolor=BACKGROUND, bold=bold)


TEXT = ink(TEXT_COLOUR)
DIM = ink(DIM_TEXT)
FAINT = ink("#4d5a66")
TRACK = ink("#26303a")
STRONG = ink("#ffffff", bold=True)
ACCENT = ink(ACCENT_COLOUR)
ACCENT_STRONG = ink(ACCENT_COLOUR, bold=True)
GOOD = ink(GOOD_COLOUR)
WARN = ink(WARN_COLOUR)
BAD = ink(BAD_COLOUR)
BAD_STRONG = ink(BAD_COLOUR, bold=True)
KEY = ink(ACCENT_COLOUR, bold=True)
BADGE = Style(color=BACKGROUND, bgcolor=WARN_COLOUR, bold=True)
BADGE_BAD = Style(color=BACKGROUND, bgcolor=BAD_COLOUR, bold=True)
CURSOR = Style(color="#ffffff", bgcolor="#24435a", bold=True)

SLOT_COLOURS = (
    ("#4477aa", "#ffffff"),
    ("#ccbb44", BACKGROUND),
    ("#66ccee", BACKGROUND),
    ("#ee6677", BACKGROUND),
    ("#228833", "#ffffff"),
    ("#aa3377", "#ffffff"),
    ("#bbbbbb", BACKGROUND),
    ("#dd8833", BACKGROUND),
)
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

LEVELS: dict[Literal["healthy", "warning", "problem", "unknown"], Style] = {
    "healthy": GOOD,
    "warning": WARN,
    "problem": BAD,
    "unknown": DIM,
}


def slot_digit(slot: int) -> str:
    """One character that names a slot: 0-9, a-z, A-Z, then again from 0."""
    return DIGITS[slot % len(DIGITS)]


@lru_cache(maxsize=256)
def slot_fill(slot: int) -> Style:
    """A cell filled with a slot's colour."""
    background, ink = SLOT_COLOURS[slot % len(SLOT_COLOURS)]
    return Style(color=ink, bgcolor=background, bold=True)


@lru_cache(maxsize=256)
def slot_ink(slot: int) -> Style:
    """Text in a slot's colour."""
    return ink(SLOT_COLOURS[slot % len(SLOT_COLOURS)][0], bold=True)


@lru_cache(maxsize=512)
def clickable(style: Style, action: str) -> Style:
    """`style` that runs the application's action `action` when clicked."""
    return style + Style.from_meta({"@click": f"app.do('{action}')"})
