"""The benchmark screen: the run under way, the runs so far, two of them compared."""

from __future__ import annotations

import contextlib
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Horizontal

from sessions.bench.files import read_result
from tui.console.panels.bench_progress import BenchProgressPanel
from tui.console.panels.comparison import ComparisonPanel
from tui.console.panels.list_panel import ListPanel
from tui.console.panels.runs import Run, RunsPanel
from tui.console.screens.screen import ConsoleScreen
from tui.console.session.bench_runner import saved_results
from tui.console.store.store import Store
from tui.console.view import View


class BenchScreen(ConsoleScreen):
    """`folder` holds the runs kept before."""

    MODE = "bench"

    def __init__(self, store: Store, view: View, folder: Path) -> None:
        super().__init__(store, view)
        self._folder = folder

    def compose_body(self) -> ComposeResult:
        yield BenchProgressPanel(self.store, self.view, id="bench-progress", classes="box")
        with Horizontal(id="bench-body"):
            runs = RunsPanel(self.store, self.view, id="runs", classes="box")
            yield runs
            yield ComparisonPanel(runs)

    def on_mount(self) -> None:
        self.runs = self.query_one(RunsPanel)
        self.runs.focus()
        self.load_kept()

    def on_screen_resume(self) -> None:
        self.load_kept()

    def load_kept(self) -> None:
        """Read the kept results anew; files that are not results are passed over."""
        kept = []
        for path in saved_results(self._folder):
            with contextlib.suppress(OSError, ValueError):
                kept.append(Run(read_result(path), path))
        self.query_one(RunsPanel).kept = kept

    def on_list_panel_chosen(self, event: ListPanel.Chosen) -> None:
        self.runs.mark(self.runs.items()[event.index].result.run)

    def lay_out(self, width: int, height: int) -> None:
        self.query_one("#bench-progress").styles.height = 3 if self.has_class("compact") else 4
