"""Asks for a time of the recording to go to."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from tui.console.draw.palette import BAD, DIM


class AskTime(ModalScreen[float | None]):
    """Returns seconds from the recording's start, or None."""

    BINDINGS = [Binding("escape", "cancel", "cancel", show=False)]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="ask-time") as box:
            box.border_title = "Go to"
            box.border_subtitle = "enter goes · esc cancels"
            yield Input(placeholder="1:02:03, 2:30 or 90", id="time")
            yield Static(Text("Hours, minutes and seconds from the start.", DIM), id="time-note")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        try:
            self.dismiss(seconds_of(event.value))
        except ValueError as error:
            self.query_one("#time-note", Static).update(Text(str(error), BAD))

    def action_cancel(self) -> None:
        """Stay."""
        self.dismiss(None)


def seconds_of(text: str) -> float:
    """Seconds of [[hours:]minutes:]seconds. Raise ValueError with one line."""
    parts = text.strip().split(":")
    try:
        values = [float(part) for part in parts]
    except ValueError:
        values = []
    if not values or len(values) > 3 or any(value < 0 for value in values):
        raise ValueError(f"{text.strip()!r} is no time: write 1:02:03, 2:30 or 90")
    seconds = 0.0
    for value in values:
        seconds = seconds * 60 + value
    return seconds
