"""The benchmark screen: the run under way, the runs so far, two of them side by side."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal

from tui.console.panels.bench_progress import BenchProgressPanel
from tui.console.panels.comparison import ComparisonPanel
from tui.console.panels.list_panel import ListPanel
from tui.console.panels.runs import RunsPanel
from tui.console.runs import Runs
from tui.console.screens.screen import ConsoleScreen
from tui.console.store.store import Store
from tui.console.view import View


class BenchScreen(ConsoleScreen):
    """Runs are marked here; the compare screen tests what is marked."""

    MODE = "bench"

    def __init__(self, store: Store, view: View, runs: Runs) -> None:
        super().__init__(store, view)
        self._runs = runs

    def compose_body(self) -> ComposeResult:
        yield BenchProgressPanel(self.store, self.view, id="bench-progress", classes="box")
        with Horizontal(id="bench-body"):
            yield RunsPanel(self._runs, self.store, self.view)
            yield ComparisonPanel(self._runs, self.store, self.view)

    def on_mount(self) -> None:
        self.query_one(RunsPanel).focus()

    def on_screen_resume(self) -> None:
        self._runs.load_kept()

    def on_list_panel_chosen(self, event: ListPanel.Chosen) -> None:
        self._runs.mark(self._runs.all()[event.index].result.run)
        event.panel.redraw()

    def lay_out(self, width: int, height: int) -> None:
        self.query_one("#bench-progress").styles.height = 3 if self.has_class("compact") else 4
