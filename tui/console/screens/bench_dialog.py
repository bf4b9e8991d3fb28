"""Asks what a benchmark should measure."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Static

from tui.console.draw.palette import BAD, DIM
from tui.console.session.bench_runner import BenchRequest

MOST_CONCURRENCY = 4096


class BenchDialog(ModalScreen[BenchRequest | None]):
    """Returns what to measure, or None."""

    BINDINGS = [Binding("escape", "cancel", "cancel", show=False)]

    def __init__(self, before: BenchRequest) -> None:
        super().__init__()
        self._before = before

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="bench-dialog") as box:
            box.border_title = "Benchmark"
            box.border_subtitle = "enter starts · tab next · esc cancels"
            yield Label("Concurrencies")
            yield Input(",".join(str(c) for c in self._before.concurrencies), id="concurrencies")
            yield Label("Repetitions (5 or more let runs be compared with significance)")
            yield Input(str(self._before.repeat), id="repeat")
            yield Label("Name (optional)")
            yield Input(self._before.label, id="label")
            yield Static(Text("The background load is paused meanwhile.", DIM), id="bench-note")

    def on_input_submitted(self) -> None:
        try:
            request = BenchRequest(
                concurrencies(self.query_one("#concurrencies", Input).value),
                self._before.requests,
                _count(self.query_one("#repeat", Input).value, "repetitions", 1000),
                self.query_one("#label", Input).value.strip(),
            )
        except ValueError as error:
            self.query_one("#bench-note", Static).update(Text(str(error), BAD))
            return
        self.dismiss(request)

    def action_cancel(self) -> None:
        """Measure nothing."""
        self.dismiss(None)


def concurrencies(text: str) -> tuple[int, ...]:
    """Whole numbers separated by commas. Raise ValueError with one line."""
    values = tuple(_count(part, "a concurrency", MOST_CONCURRENCY) for part in text.split(",") if part.strip())
    if not values:
        raise ValueError("give at least one concurrency, such as 1,4,16")
    return values


def _count(text: str, what: str, most: int) -> int:
    if not text.strip().isdecimal() or not 1 <= int(text) <= most:
        raise ValueError(f"{what} must be a whole number from 1 to {most}, not {text.strip()!r}")
    return int(text)
