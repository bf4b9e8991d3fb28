"""The dialog of a fault: what died, why, its last words, and a way on."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from sessions.messages import Fault
from tui.console.draw.palette import BAD_STRONG, DIM, KEY, STRONG, TEXT
from tui.console.store.store import fault_title


class FaultDialog(ModalScreen[bool]):
    """Returns whether to restart the engine."""

    BINDINGS = [
        Binding("r,R,enter", "restart", "restart", show=False),
        Binding("escape", "close", "close", show=False),
        Binding("q", "app.do('quit')", "quit", show=False),
    ]

    def __init__(self, fault: Fault, restartable: bool) -> None:
        super().__init__()
        self.fault = fault
        self.restartable = restartable

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="fault-box", classes="dialog") as box:
            box.border_title = "Engine fault"
            yield Static(self._text(), id="fault-text")

    def _text(self) -> Text:
        fault = self.fault
        text = Text()
        text.append(f"{fault_title(fault)}\n", BAD_STRONG)
        text.append("cause  ", DIM).append(f"{fault.cause}\n", STRONG)
        if fault.signal is not None or fault.exit_code is not None:
            ended = f"signal {fault.signal}" if fault.signal is not None else f"exit code {fault.exit_code}"
            text.append("ended  ", DIM).append(f"{ended}\n", TEXT)
        if fault.last_log:
            text.append("\nlast log lines\n", DIM)
            text.append("".join(f"  {line}\n" for line in fault.last_log), TEXT)
        text.append("\n")
        if self.restartable:
            text.append("r", KEY).append(" restart the engine   ", TEXT)
        else:
            text.append("This engine was not started here: restart it where it runs.   ", DIM)
        text.append("esc", KEY).append(" look around   ", TEXT).append("q", KEY).append(" quit", TEXT)
        return text

    def action_restart(self) -> None:
        """Close, and restart where that is possible."""
        self.dismiss(self.restartable)

    def action_close(self) -> None:
        """Close only."""
        self.dismiss(False)
