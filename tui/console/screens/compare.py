"""The compare screen: is the difference between the marked runs one, and how large is it."""

from __future__ import annotations

from collections.abc import Hashable

from rich.style import Style
from textual.app import ComposeResult
from textual.strip import Strip

from sessions.results import BenchResult
from tui.console.draw.palette import ACCENT_STRONG, BAD, BAD_STRONG, DIM, GOOD, STRONG, TEXT, WARN
from tui.console.draw.row import Row, blank, text_line
from tui.console.draw.units import quantity
from tui.console.panels.text_panel import TextPanel
from tui.console.runs import Runs
from tui.console.screens.screen import ConsoleScreen
from tui.console.store.store import Store
from tui.console.view import View

NAME, FIGURE, RATIO, P = 24, 22, 20, 10
NARROW, NARROW_FIGURE = 110, 9
"""In a narrow terminal the runs' own intervals are left out."""
VERDICT_INKS: dict[str, Style] = {"better": GOOD, "worse": BAD, "~": DIM}


class ComparePanel(TextPanel):
    """Medians over repetitions with 95 % intervals, ratios, and Mann-Whitney p corrected over all rows."""

    HELP_TEXT = (
        "Marked runs (screen 3) against the first of them, A. The unit is the repetition: medians with 95 % intervals, "
        "the ratio with its interval, p of the Mann-Whitney test corrected by Holm over all rows. ~ is no difference "
        "shown; the line under the table says how many repetitions a verdict would need."
    )

    def __init__(self, runs: Runs, store: Store, view: View) -> None:
        super().__init__(store, view, id="compare", classes="box")
        self._runs = runs

    def title(self) -> str:
        return "Compare · significance"

    def lines_key(self) -> Hashable:
        return self._runs.key

    def lines(self, width: int) -> list[Strip]:
        from sessions.compare.compare import WorkloadMismatch, compare_runs

        results = self._runs.chosen()
        if len(results) < 2:
            return [text_line(width, " Mark two runs or more on screen 3 (enter).", DIM)]
        figure = FIGURE if width >= NARROW else NARROW_FIGURE
        out = [self._headline(letter, run, width) for letter, run in zip("ABCD", results, strict=False)]
        try:
            comparison = compare_runs(results)
        except (WorkloadMismatch, ValueError) as error:
            return [*out, blank(width), text_line(width, f" {error}", BAD_STRONG)]
        for letter, pair in zip("BCD", comparison.pairs, strict=False):
            out.append(blank(width))
            for difference in pair.differences:
                row = Row().add("   differs  ", DIM).add(f"{difference.what} ", TEXT)
                out.append(row.add(f"{difference.base} → {difference.other}", STRONG).strip(width))
            out += [text_line(width, f"   {warning}", WARN) for warning in pair.warnings]
            load = ""
            for cell in pair.rows:
                if cell.load != load:
                    load = cell.load
                    head = Row().add(f" {load}", ACCENT_STRONG).to(NAME).add(f"{'A':>{figure}}{letter:>{figure}}", DIM)
                    out.append(head.add(f"{f'{letter} / A':>{RATIO}}{'p':>{P}}", DIM).strip(width))
                row = Row().add(f"   {cell.name}", TEXT).add(f" {cell.unit}", DIM).to(NAME)
                for side in (cell.base, cell.other):
                    shown = quantity(side.median) if figure < FIGURE else _side(side.median, side.low, side.high)
                    row.add(f"{shown:>{figure}}", TEXT)
                ink = VERDICT_INKS[cell.verdict]
                row.add(f"{_ratio(cell.ratio, cell.ratio_low, cell.ratio_high):>{RATIO}}", ink)
                row.add(f"{'' if cell.p_holm is None else f'{cell.p_holm:.3f}':>{P}}", ink)
                row.add(f"  {cell.verdict}", ink)
                out.append(row.strip(width))
        out.append(blank(width))
        said = f" Holm over {comparison.tests} tests at {comparison.alpha:g}: a verdict needs {comparison.fewest} "
        out.append(text_line(width, f"{said}repetitions a side or more.", DIM))
        return out

    def _headline(self, letter: str, run: BenchResult, width: int) -> Strip:
        row = Row().add(f" {letter} ", ACCENT_STRONG).add(run.label or run.run, STRONG)
        row.add(f"  {run.started_utc[:16].replace('T', ' ')}  {run.engine.model}", DIM)
        return row.add("  EMULATED" if run.emulated else "", WARN).strip(width)


def _side(median: float, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return quantity(median)
    return f"{quantity(median)} [{quantity(low)}, {quantity(high)}]"


def _ratio(ratio: float | None, low: float | None, high: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:.2f}x" + (f" [{low:.2f}, {high:.2f}]" if low is not None and high is not None else "")


class CompareScreen(ConsoleScreen):
    """The comparison of the marked runs."""

    MODE = "compare"

    def __init__(self, store: Store, view: View, runs: Runs) -> None:
        super().__init__(store, view)
        self._runs = runs

    def compose_body(self) -> ComposeResult:
        yield ComparePanel(self._runs, self.store, self.view)

    def on_mount(self) -> None:
        self.query_one(ComparePanel).focus()

    def on_screen_resume(self) -> None:
        self._runs.load_kept()
