"""The charts of an experiment's report, as inline SVG. Colours are classes, so that the page's style decides them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from sessions.bench.text import number
from sessions.compare.ab.analysis import Effect
from sessions.compare.ab.design import cells, shown
from sessions.compare.ab.result import AbResult
from sessions.compare.ab.text import ratio
from sessions.compare.pareto import pareto

WIDTH = 760
LEFT = 300
COLOURS = 7
Point = tuple[float, float]


def forest(effects: Sequence[Effect]) -> str:
    """Each effect's ratio with its interval on a logarithmic axis; the line is at no change."""
    reach = max([abs(math.log(v)) for e in effects for v in (e.ratio, e.low, e.high) if v] + [math.log(1.1)]) * 1.15
    height = 28 * len(effects) + 40

    def x(value: float) -> float:
        return LEFT + (math.log(value) / reach + 1) / 2 * (WIDTH - LEFT - 180)

    parts = [_line((x(1), 6), (x(1), height - 26), "axis")]
    for tick in _ratio_ticks(reach):
        parts += [_line((x(tick), height - 30), (x(tick), height - 26), "axis")]
        parts += [_text(x(tick), height - 12, f"{tick:g}x", "middle")]
    for place, effect in enumerate(effects):
        y = 20 + 28 * place
        parts.append(_text(LEFT - 8, y + 4, effect.name, "end"))
        if effect.low is not None and effect.high is not None:
            parts.append(_line((x(effect.low), y), (x(effect.high), y), f"bar {_tone(effect)}"))
        parts.append(f'<circle cx="{x(effect.ratio):.1f}" cy="{y}" r="5" class="{_tone(effect)}"/>')
        parts.append(_text(WIDTH - 172, y + 4, f"{ratio(effect)}", "start"))
    return _svg(height, parts, "Effects")


def over_time(result: AbResult) -> str:
    """Every run's value of the deciding metric in the order it was run: a drift shows, and that it fell on all."""
    metric = result.metrics[0]
    values = [run.metrics[metric.metric] for run in result.runs]
    points = [(run.at_s, value) for run, value in zip(result.runs, values, strict=True)]
    marks = [(point, run.cell) for point, run in zip(points, result.runs, strict=True)]
    return _scatter(marks, "seconds since the start", f"{metric.name}, {metric.unit}", [c.label for c in result.cells])


def pareto_chart(result: AbResult) -> str:
    """Tokens a second for a user against those of a device, a mark a combination."""
    front = pareto(result.cells)
    marks = [((p.tokens_per_s_per_user, p.tokens_per_s_per_device), i) for i, p in enumerate(front)]
    return _scatter(marks, "tok/s for a user", "tok/s of a device", [cell.label for cell in result.cells])


def interaction(result: AbResult, first: int, second: int) -> str:
    """The deciding metric's mean over the first factor's values, a line for each value of the second."""
    f, g = result.factors[first], result.factors[second]
    metric = result.metrics[0]
    names = cells(result.factors)
    lines: list[list[Point]] = []
    for other in range(len(g.levels)):
        line: list[Point] = []
        for level in range(len(f.levels)):
            logs = [
                math.log(run.metrics[metric.metric])
                for run in result.runs
                if names[run.cell][first] == level and names[run.cell][second] == other
            ]
            line.append((level, math.exp(math.fsum(logs) / len(logs))))
        lines.append(line)
    scale = _Scale([point for line in lines for point in line], pad_x=0.3)
    parts = scale.frame(f"{f.knob}", f"{metric.name}, {metric.unit} (geometric mean)", ticks_x=False)
    parts += [_text(scale.x(i), scale.bottom + 16, shown(level), "middle") for i, level in enumerate(f.levels)]
    for other, line in enumerate(lines):
        path = " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in line)
        parts.append(f'<polyline points="{path}" class="c{other % COLOURS} line"/>')
        parts += [_mark(scale, point, other) for point in line]
        x, y = line[-1]
        parts.append(_text(scale.x(x) + 10, scale.y(y) + 4, f"{g.knob}={shown(g.levels[other])}", "start"))
    return _svg(scale.height, parts, f"{f.knob} at each {g.knob}")


class _Scale:
    """Maps values to the plot area; the vertical axis starts at 0."""

    def __init__(self, points: Sequence[Point], pad_x: float = 0.0) -> None:
        self.height = 280
        self.left, self.right, self.top, self.bottom = 70, WIDTH - 190, 16, 230
        xs = [x for x, _ in points]
        spread = (max(xs) - min(xs)) or 1.0
        self._low, self._high = min(xs) - spread * max(0.04, pad_x), max(xs) + spread * max(0.04, pad_x)
        self._most = max(y for _, y in points) * 1.08 or 1.0

    def x(self, value: float) -> float:
        return self.left + (value - self._low) / (self._high - self._low) * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - value / self._most * (self.bottom - self.top)

    def frame(self, x_title: str, y_title: str, ticks_x: bool = True) -> list[str]:
        """Axes with their ticks and titles."""
        parts = [_line((self.left, self.top), (self.left, self.bottom), "axis")]
        parts.append(_line((self.left, self.bottom), (self.right, self.bottom), "axis"))
        for value in nice_ticks(0.0, self._most):
            parts.append(_line((self.left, self.y(value)), (self.right, self.y(value)), "grid"))
            parts.append(_text(self.left - 6, self.y(value) + 4, number(value), "end"))
        across = nice_ticks(self._low, self._high) if ticks_x else []
        parts += [_text(self.x(value), self.bottom + 16, number(value), "middle") for value in across]
        parts.append(_text((self.left + self.right) / 2, self.bottom + 36, x_title, "middle"))
        parts.append(
            f'<text transform="translate(14 {(self.top + self.bottom) / 2}) rotate(-90)" text-anchor="middle">'
            f"{escape(y_title)}</text>"
        )
        return parts


def _scatter(marks: Sequence[tuple[Point, int]], x_title: str, y_title: str, names: Sequence[str]) -> str:
    scale = _Scale([point for point, _ in marks])
    parts = scale.frame(x_title, y_title) + [_mark(scale, point, which) for point, which in marks]
    for place, name in enumerate(names):
        y = scale.bottom + 60 + 18 * place
        parts.append(f'<circle cx="{scale.left + 6}" cy="{y - 4}" r="5" class="c{place % COLOURS}"/>')
        parts.append(_text(scale.left + 18, y, f"{place}  {name}", "start"))
    return _svg(scale.bottom + 60 + 18 * len(names), parts, f"{y_title} against {x_title}")


def _mark(scale: _Scale, point: Point, which: int) -> str:
    """A dot with its number, so that it can be told apart without colour."""
    x, y = scale.x(point[0]), scale.y(point[1])
    dot = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" class="c{which % COLOURS}"/>'
    return f'{dot}<text x="{x:.1f}" y="{y + 3.5:.1f}" text-anchor="middle" class="digit">{which}</text>'


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most `most` multiples of 1, 2 or 5 times a power of ten within [low, high]."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [place * step for place in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _ratio_ticks(reach: float) -> list[float]:
    steps = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
    inside = [step for step in steps if math.log(step) < reach][-2:]
    return sorted({1.0, *inside, *(round(1 / step, 3) for step in inside)})


def _tone(effect: Effect) -> str:
    return {"better": "good", "worse": "bad", "changes": "note"}.get(effect.verdict, "quiet")


def _line(start: Point, end: Point, style: str) -> str:
    return f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" class="{style}"/>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _svg(height: float, parts: Sequence[str], title: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )
