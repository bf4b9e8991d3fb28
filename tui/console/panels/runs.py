"""Benchmark runs: those of this session and those kept before; two of them marked A and B."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

import msgspec

from sessions.results import BenchResult
from tui.console.draw.palette import ACCENT_STRONG, BADGE, DIM, STRONG, TEXT, WARN
from tui.console.draw.row import Row
from tui.console.draw.units import quantity
from tui.console.panels.list_panel import ListPanel
from tui.console.store.events import knob_text


class Run(msgspec.Struct, frozen=True):
    """A finished run, and where it is kept (None: only in this session)."""

    result: BenchResult
    path: Path | None = None


class RunsPanel(ListPanel):
    """Two lines a run: when and what; its knobs and best rate."""

    LINES_PER_ITEM = 2
    EMPTY_TEXT = "No run yet: b starts one."
    HELP_TEXT = (
        "Runs of this session, then runs kept before, the newest first. Enter marks a run: the first mark is A, the "
        "base; the second is B, which is compared with it. Enter on a marked run takes its mark away."
    )

    def on_mount(self) -> None:
        super().on_mount()
        self.kept: list[Run] = []
        self.marked: list[str] = []

    def items(self) -> list[Run]:
        here = [Run(result) for result in reversed(self.store.bench.results.values())]
        names = {run.result.run for run in here}
        return here + [run for run in self.kept if run.result.run not in names]

    def items_key(self) -> Hashable:
        return (self.store.bench.version, len(self.kept), tuple(self.marked))

    def title(self) -> str:
        return f"Runs · {len(self.items())}"

    def subtitle(self) -> str:
        return "enter marks A, then B"

    def mark(self, run: str) -> None:
        """Mark or unmark a run; a third mark replaces B."""
        if run in self.marked:
            self.marked.remove(run)
        else:
            self.marked = [*self.marked[:1], run]
        self.redraw()

    def chosen(self) -> tuple[BenchResult | None, BenchResult | None]:
        """Runs A and B; without marks the two newest, the older one as A."""
        results = {run.result.run: run.result for run in self.items()}
        marked = [results[name] for name in self.marked if name in results]
        if marked:
            return marked[0], marked[1] if len(marked) > 1 else None
        newest = list(results.values())[:2]
        return (newest[-1] if newest else None), (newest[0] if len(newest) > 1 else None)

    def item_rows(self, item: Run, width: int, selected: bool) -> list[Row]:
        result = item.result
        a, b = self.chosen()
        mark = "A" if result is a else "B" if result is b else " "
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
