"""Line charts and swimlanes as SVG text: no script, no fonts, no links to anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

Point = tuple[float, float | None]

WIDTH, HEIGHT = 860, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 26
PALETTE = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""Tol's bright scheme: apart from each other also for most colour-blind readers."""


class Series(NamedTuple):
    """One line: its name and (seconds, value) points; a None breaks the line."""

    name: str
    points: Sequence[Point]


class Line(NamedTuple):
    """A vertical line over the whole chart, with the text that a pointer shows."""

    seconds: float
    text: str


class Bar(NamedTuple):
    """A piece of a lane, from and to in milliseconds."""

    start: float
    end: float
    colour: int
    text: str


def line_chart(title: str, unit: str, series: Sequence[Series], lines: Sequence[Line] = ()) -> str:
    """A chart over seconds, from zero up; lines mark points of interest."""
    times = [seconds for one in series for seconds, _ in one.points]
    values = [value for one in series for _, value in one.points if value is not None]
    low, high = (min(times), max(times)) if times else (0.0, 1.0)
    top = _round_up(max(values, default=1.0))
    plot = _Plot(low, max(high, low + 1e-9), top)
    parts = [_open(title, HEIGHT), *_axes(plot, unit)]
    for mark in lines:
        if low <= mark.seconds <= high:
            x = plot.x(mark.seconds)
            parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}" stroke="#888" '
                f'stroke-dasharray="3 3"><title>{escape(mark.text)}</title></line>'
            )
    for number, one in enumerate(series):
        colour = PALETTE[number % len(PALETTE)]
        parts += [
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>'
            for points in plot.polylines(one.points)
        ]
        if len(series) > 1:
            x = _LEFT + 8 + 130 * number
            parts.append(f'<text x="{x}" y="{_TOP + 10}" fill="{colour}">{escape(one.name)}</text>')
    return "".join([*parts, "</svg>"])


def swimlanes(title: str, lanes: Sequence[tuple[str, Sequence[Bar]]]) -> str:
    """One lane a stage over milliseconds; colours tell micro-batch slots apart, and so does the digit."""
    row = 22
    height = _TOP + row * max(1, len(lanes)) + _BOTTOM
    instants = [instant for _, bars in lanes for bar in bars for instant in (bar.start, bar.end)]
    low, high = (min(instants), max(instants)) if instants else (0.0, 1.0)
    scale = (WIDTH - _LEFT - _RIGHT) / max(high - low, 1e-9)
    parts = [_open(title, height)]
    for number, (name, bars) in enumerate(lanes):
        y = _TOP + row * number
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{_LEFT}" y="{y}" width="{WIDTH - _LEFT - _RIGHT}" height="{row - 4}" fill="#8882"/>')
        for bar in bars:
            x, width = _LEFT + (bar.start - low) * scale, max(0.5, (bar.end - bar.start) * scale)
            parts.append(
                f'<g><title>{escape(bar.text)}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" '
                f'height="{row - 4}" fill="{PALETTE[bar.colour % len(PALETTE)]}"/>'
            )
            if width > 12:
                parts.append(
                    f'<text x="{x + width / 2:.1f}" y="{y + 13}" text-anchor="middle" fill="#000">{bar.colour}</text>'
                )
            parts.append("</g>")
    for share in (0.0, 0.5, 1.0):
        x = _LEFT + share * (WIDTH - _LEFT - _RIGHT)
        anchor = ("start", "middle", "end")[int(share * 2)]
        parts.append(f'<text x="{x:.0f}" y="{height - 8}" text-anchor="{anchor}">{(high - low) * share:.1f} ms</text>')
    return "".join([*parts, "</svg>"])


class _Plot(NamedTuple):
    low: float
    high: float
    top: float

    def x(self, seconds: float) -> float:
        return _LEFT + (seconds - self.low) / (self.high - self.low) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - value / self.top * (HEIGHT - _TOP - _BOTTOM)

    def polylines(self, points: Sequence[Point]) -> list[str]:
        runs: list[list[str]] = [[]]
        for seconds, value in points:
            if value is None:
                runs.append([])
            else:
                runs[-1].append(f"{self.x(seconds):.1f},{self.y(value):.1f}")
        return [" ".join(run) for run in runs if run]


def _open(title: str, height: int) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}" '
        'xmlns="http://www.w3.org/2000/svg" font-size="11" fill="currentColor">'
    )


def _axes(plot: _Plot, unit: str) -> list[str]:
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = plot.y(plot.top * share)
        label = f"{plot.top * share:g}" + (f" {unit}" if share == 1.0 and unit else "")
        parts.append(f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8884"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>')
        x = plot.x(plot.low + (plot.high - plot.low) * share)
        anchor = ("start", "middle", "end")[int(share * 2)]
        seconds = plot.low + (plot.high - plot.low) * share
        parts.append(f'<text x="{x:.0f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{seconds:.0f} s</text>')
    return parts


def _round_up(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    if value <= 0:
        return 1.0
    step = 10.0 ** (len(f"{value:.0f}") - 1) if value >= 1 else 0.1
    for factor in (1, 2, 5, 10):
        if value <= factor * step:
            return factor * step
    return value
