"""Output tokens a second: now, its history, and what it should be."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from rich.style import Style
from textual.strip import Strip

from tui.console.draw.braille import area, nice_top
from tui.console.draw.palette import ACCENT, BAD_STRONG, DIM, FAINT, GOOD, STRONG, TEXT, WARN
from tui.console.draw.row import Row, text_line
from tui.console.draw.units import quantity
from tui.console.panels.panel import Panel
from tui.console.store.events import Event

NS = 1_000_000_000
AXIS_WIDTH = 7
GAP_NS = NS
"""Longest stretch without a sample that is still drawn through."""
MARKS: dict[str, tuple[str, Style]] = {
    "knob": ("▲", WARN),
    "fault": ("✗", BAD_STRONG),
    "bench": ("◆", GOOD),
    "verdict": ("●", ACCENT),
    "load": ("△", DIM),
    "align": ("┃", STRONG),
}


class ThroughputPanel(Panel):
    """Figures on the first line, a filled chart under them, marks of knob changes on the time axis."""

    HELP_TEXT = (
        "Output tokens a second, measured over one second. The dashed line is what the hardware should give at this "
        "concurrency, when a diagnosis knows it. Marks on the axis: ▲ knob, △ load, ◆ benchmark, ● verdict, ✗ fault. "
        "{ and } change the time covered."
    )

    def key(self) -> Hashable:
        series = self.store.output_rate.series
        return (
            series.last_t_ns,
            self.store.events_version,
            self.view.chart_s,
            self.view.frozen_ns,
            self.store.expected,
            tuple(gpu.t_ns for gpu in self.store.gpus.values()),
        )

    def title(self) -> str:
        return f"Throughput · last {self.view.chart_s} s"

    def rows(self, width: int, height: int) -> list[Strip]:
        now = self.store.output_rate.series.last
        if now is None:
            return [text_line(width, " No token yet.", DIM)]
        strips = [self._figures(now, width)]
        if height >= 4:
            strips += self._chart(width, height - 2)
            strips.append(self._axis(width))
        elif height >= 2:
            strips += self._chart(width, height - 1)
        return strips

    def _figures(self, now: float, width: int) -> Strip:
        row = Row().add(f" {quantity(now)}", STRONG).add(" tok/s", TEXT)
        queue, expected = self.store.queue, self.store.expected
        prompt = self.store.prompt_rate.series.last
        watts = sum(gpu.watts or 0.0 for gpu in self.store.gpus.values())
        parts: list[Row] = []
        if expected is not None:
            low, high = quantity(expected.low), quantity(expected.high)
            band = low if low == high else f"{low}-{high}"
            parts.append(Row().add("expected ", DIM).add(band, GOOD if now >= expected.low else WARN))
        if queue and queue.running:
            parts.append(Row().add(quantity(now / queue.running), TEXT).add(" a stream", DIM))
        if watts and now >= 1:
            parts.append(Row().add(quantity(watts / now), TEXT).add(" J/token", DIM))
        if prompt:
            parts.append(Row().add(quantity(prompt), TEXT).add(" prompt tok/s", DIM))
        for part in parts:
            if row.width + part.width + 3 <= width:
                row.add("   ").extend(part)
        return row.strip(width)

    def end_ns(self) -> int:
        """The instant at the chart's right edge."""
        return self.view.frozen_ns or self.store.output_rate.series.last_t_ns or 0

    def marked(self) -> Iterable[Event]:
        """What may be marked on the axis, in the order of time."""
        return self.store.events

    def highest(self, cells: int) -> float:
        """The largest value that the chart has to show."""
        start, column = self._window(cells)
        values = self.store.output_rate.series.columns(start, column, 2 * cells)
        expected = self.store.expected
        most = max((value for value in values if value is not None), default=0.0)
        return max(most, expected.high if expected else 0.0, 1.0)

    def _window(self, cells: int) -> tuple[int, int]:
        """Start of the chart, and ns a half cell."""
        column = max(1, self.view.chart_s * NS // (2 * cells))
        return (self.end_ns() // column + 1) * column - 2 * cells * column, column

    def _chart(self, width: int, height: int) -> list[Strip]:
        cells = max(1, width - AXIS_WIDTH)
        start, column = self._window(cells)
        values = _filled(self.store.output_rate.series.columns(start, column, 2 * cells), max(1, GAP_NS // column))
        expected = self.store.expected
        top = nice_top(self.highest(cells))
        lines = area(values, height, top)
        mid_line = height - 1 - int(expected.mid / top * height) if expected else None
        strips = []
        for y, line in enumerate(lines):
            row = Row()
            label = quantity(top) if y == 0 else "0" if y == height - 1 else ""
            row.add(f"{label:>{AXIS_WIDTH - 1}} ", DIM)
            if y == mid_line or (mid_line is not None and mid_line < 0 and y == 0):
                for char in line:
                    row.add("╌" if char == "⠀" else char, GOOD if char == "⠀" else ACCENT)
            else:
                row.add(line, ACCENT)
            strips.append(row.strip(width))
        return strips

    def _axis(self, width: int) -> Strip:
        cells = max(1, width - AXIS_WIDTH)
        start, column = self._window(cells)
        marks: dict[int, Event] = {}
        for event in self.marked():
            at = (event.t_ns - start) // (2 * column)
            if event.category in MARKS and 0 <= at < cells:
                marks[at] = event
        row = Row().to(AXIS_WIDTH)
        for at in range(cells):
            if at in marks:
                row.add(*MARKS[marks[at].category])
            else:
                row.add("─", FAINT)
        return row.strip(width)


def _filled(values: list[float | None], gap: int) -> list[float | None]:
    """Values with gaps of at most `gap` columns closed by the value before them."""
    out: list[float | None] = []
    last: float | None = None
    missing = 0
    for value in values:
        missing = 0 if value is not None else missing + 1
        last = value if value is not None else last
        out.append(last if missing <= gap else None)
    return out
