"""Two runs side by side: each figure of A and B, and how they relate."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from rich.style import Style
from textual.strip import Strip

from sessions.knobs import KNOB_NAMES
from sessions.results import BenchPoint, BenchResult
from tui.console.draw.palette import ACCENT_STRONG, BAD, DIM, GOOD, STRONG, TEXT, WARN
from tui.console.draw.row import Row, blank, text_line
from tui.console.draw.units import NOT_KNOWN, quantity
from tui.console.panels.runs import knobs_text
from tui.console.panels.text_panel import TextPanel
from tui.console.runs import Runs
from tui.console.store.events import knob_text
from tui.console.store.store import Store
from tui.console.view import View

SAME = 0.01
"""Ratios closer to 1 than this are shown as equal."""


class Metric(NamedTuple):
    """A figure of a point; `better` is +1 when more is better, -1 when less is, 0 when neither."""

    name: str
    unit: str
    value: Callable[[BenchPoint], float | None]
    better: int


METRICS = (
    Metric("throughput", "tok/s", lambda p: p.output_tokens_per_s, 1),
    Metric("a stream", "tok/s", lambda p: p.tokens_per_s_per_stream, 1),
    Metric("ITL p50", "ms", lambda p: p.itl_ms.p50, -1),
    Metric("ITL p99", "ms", lambda p: p.itl_ms.p99, -1),
    Metric("TTFT p50", "ms", lambda p: p.ttft_ms.p50, -1),
    Metric("TTFT p99", "ms", lambda p: p.ttft_ms.p99, -1),
    Metric("end to end p50", "ms", lambda p: p.e2e_ms.p50, -1),
    Metric("herd index H", "", lambda p: p.herd_index, -1),
    Metric("waves", "", lambda p: p.waves, 1),
    Metric("occupancy", "", lambda p: sum(p.occupancy) / len(p.occupancy) if p.occupancy else None, 1),
    Metric("energy", "J/token", lambda p: p.energy_j_per_token, -1),
)
NAME, FIGURE = 24, 12
NARROW_NAME = 21


class ComparisonPanel(TextPanel):
    """A table a concurrency that both runs measured."""

    HELP_TEXT = (
        "Figures of run A and run B at each concurrency, and B relative to A: green is better, red is worse. One "
        "repetition says nothing of significance: screen 4 tests the difference where runs have five or more. Up and "
        "down scroll, once tab has come here."
    )

    def __init__(self, runs: Runs, store: Store, view: View) -> None:
        super().__init__(store, view, id="comparison", classes="box")
        self._runs = runs

    def lines_key(self) -> Hashable:
        return self._runs.key

    def title(self) -> str:
        a, b = self._two()
        return "Comparison · B against A" if b else "Run" if a else "Comparison"

    def lines(self, width: int) -> list[Strip]:
        a, b = self._two()
        if a is None:
            return [text_line(width, " Runs appear here side by side.", DIM)]
        lines = self._head(a, b, width)
        for point in a.points:
            other = next((p for p in b.points if p.concurrency == point.concurrency), None) if b else None
            lines += self._table(point, other, width)
        return lines

    def _two(self) -> tuple[BenchResult | None, BenchResult | None]:
        chosen = self._runs.chosen()
        return (chosen[0] if chosen else None), (chosen[1] if len(chosen) > 1 else None)

    def _head(self, a: BenchResult, b: BenchResult | None, width: int) -> list[Strip]:
        lines = []
        for name, run in (("A", a), ("B", b)):
            if run is not None:
                row = Row().add(f" {name} ", ACCENT_STRONG).add(run.label or run.run, STRONG)
                lines.append(row.add(f"  {knobs_text(run)}", DIM).strip(width))
        if b is not None:
            changed = [
                f"{name} {knob_text(getattr(a.knobs, name))} → {knob_text(getattr(b.knobs, name))}"
                for name in KNOB_NAMES
                if getattr(a.knobs, name) != getattr(b.knobs, name)
            ]
            lines.append(Row().add("   changed: ", DIM).add(", ".join(changed) or "no knob", TEXT).strip(width))
            if a.workload.key != b.workload.key:
                warning = "   The workloads differ: these figures do not compare."
                lines.append(text_line(width, warning, WARN))
        return [*lines, blank(width)]

    def _table(self, a: BenchPoint, b: BenchPoint | None, width: int) -> list[Strip]:
        name, figure = NAME, FIGURE
        if width < NAME + 3 * FIGURE:
            name, figure = NARROW_NAME, max(1, (width - NARROW_NAME) // 3)
        head = Row().add(f" C = {a.concurrency}", ACCENT_STRONG).to(name).add(f"{'A':>{figure}}", DIM)
        if b is not None:
            head.add(f"{'B':>{figure}}", DIM).add(f"{'B / A':>{figure}}", DIM)
        lines = [head.strip(width)]
        for metric in METRICS:
            left, right = metric.value(a), metric.value(b) if b else None
            if left is None and right is None:
                continue
            row = Row().add(f"   {metric.name}", TEXT).add(f" {metric.unit}", DIM).to(name)
            row.add(f"{_figure(left):>{figure}}", TEXT)
            if b is not None:
                row.add(f"{_figure(right):>{figure}}", TEXT)
                text, style = _ratio(left, right, metric.better)
                row.add(f"{text:>{figure}}", style)
            lines.append(row.strip(width))
        return [*lines, blank(width)]


def _figure(value: float | None) -> str:
    return NOT_KNOWN if value is None else quantity(value)


def _ratio(a: float | None, b: float | None, better: int) -> tuple[str, Style]:
    if a is None or b is None or a <= 0:
        return "", DIM
    ratio = b / a
    if abs(ratio - 1) < SAME or not better:
        return f"{ratio:.2f}x", DIM
    return f"{ratio:.2f}x", GOOD if (ratio > 1) == (better > 0) else BAD
