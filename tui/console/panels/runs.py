"""Benchmark runs: those of this session and those kept before; two of them marked A and B."""

from __future__ import annotations

from collections.abc import Hashable

from sessions.results import BenchResult
from tui.console.draw.palette import ACCENT_STRONG, BADGE, DIM, STRONG, TEXT, WARN
from tui.console.draw.row import Row
from tui.console.draw.units import quantity
from tui.console.panels.list_panel import ListPanel
from tui.console.runs import Run, Runs
from tui.console.store.events import knob_text
from tui.console.store.store import Store
from tui.console.view import View


class RunsPanel(ListPanel):
    """Two lines a run: when and what; its knobs and best rate."""

    LINES_PER_ITEM = 2
    EMPTY_TEXT = "No run yet: b starts one."
    HELP_TEXT = (
        "Runs of this session, then runs kept before, the newest first. Enter marks a run: the first mark is A, the "
        "base; up to three more are compared with it (4 tests the differences). Enter again takes the mark away."
    )

    def __init__(self, runs: Runs, store: Store, view: View) -> None:
        super().__init__(store, view, id="runs", classes="box")
        self.runs = runs

    def items(self) -> list[Run]:
        return self.runs.all()

    def items_key(self) -> Hashable:
        return self.runs.key

    def title(self) -> str:
        return f"Runs · {len(self.items())}"

    def subtitle(self) -> str:
        return "enter marks A, then B"

    def item_rows(self, item: Run, width: int, selected: bool) -> list[Row]:
        result = item.result
        mark = self.runs.letter(result)
        first = Row().add(" ").add(f" {mark} ", BADGE if mark != " " else DIM).add(" ")
        first.add(result.label or result.run, STRONG)
        first.add(f"  {result.started_utc[:16].replace('T', ' ')}", DIM)
        if result.emulated:
            first.add("  EMULATED", WARN)
        best = max((point.output_tokens_per_s for point in result.points), default=None)
        second = Row().add("     ").add(f"{quantity(best)} tok/s", ACCENT_STRONG)
        second.add(f"  {knobs_text(result)}", TEXT)
        return [first, second]


def knobs_text(result: BenchResult) -> str:
    """The knobs of a run, shortly."""
    knobs = result.knobs
    return (
        f"{knobs.parallelism} {max(result.engine.pp, result.engine.ep)} · depth {knobs.async_depth} · "
        f"{knobs.admission} · mb {knobs.max_micro_batch} · graphs {knob_text(knobs.cuda_graphs)}"
    )
