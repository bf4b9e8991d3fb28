"""How far the running benchmark is."""

from __future__ import annotations

from collections.abc import Hashable

from textual.strip import Strip

from tui.console.draw.bars import add_bar
from tui.console.draw.palette import ACCENT, BAD, DIM, KEY, STRONG, TEXT, clickable
from tui.console.draw.row import Row
from tui.console.panels.panel import Panel


class BenchProgressPanel(Panel, can_focus=False):
    """Two lines: the bar, and the points measured so far."""

    def key(self) -> Hashable:
        return (self.store.bench.version, self.view.bench)

    def title(self) -> str:
        return "Benchmark"

    def rows(self, width: int, height: int) -> list[Strip]:
        progress = self.store.bench.running
        if progress is None:
            row = Row().add(" ")
            if said := self.view.bench or self.store.bench.outcome:
                return [row.add(said, TEXT).strip(width)]
            row.add(self.view.key_of("bench.start"), clickable(KEY, "bench.start")).add(" starts a benchmark", DIM)
            return [row.strip(width)]
        at = f"C={progress.concurrency} " if progress.concurrency is not None else ""
        row = Row().add(f" {at}{progress.phase} ", STRONG)
        tail = f" {progress.progress * 100:3.0f} %  {progress.detail}"
        add_bar(row, progress.progress, max(4, min(40, width - row.width - len(tail) - 1)), ACCENT)
        row.add(tail, BAD if progress.phase == "failed" else DIM)
        points = Row().add(" ")
        for point in progress.points:
            points.add(f"C={point.concurrency} ", DIM).add(f"{point.output_tokens_per_s:.1f} tok/s   ", TEXT)
        return [row.strip(width), points.strip(width)]
