"""Asks for a path: a socket to attach to, or a recording to open. What is found in the usual place is offered."""

from __future__ import annotations

import contextlib
from pathlib import Path

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

from sessions.channel.interface import ChannelError
from sessions.channel.paths import runtime_dir
from tui.console.draw.palette import DIM

MOST_OFFERED = 12


class AskPath(ModalScreen[str]):
    """Returns the path, or an empty text when nothing was chosen."""

    BINDINGS = [Binding("escape", "cancel", "cancel", show=False)]

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what
        self._found = found(what)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="ask-path") as box:
            box.border_title = f"Which {self._what}?"
            box.border_subtitle = "enter opens · esc cancels"
            yield Input(placeholder=f"path of the {self._what}", id="path")
            if self._found:
                yield OptionList(*(str(path) for path in self._found), id="found")
            else:
                yield Static(Text(f"No {self._what} found in the usual place.", DIM))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(str(self._found[event.option_index]))

    def action_cancel(self) -> None:
        """Nothing chosen."""
        self.dismiss("")


def found(what: str) -> list[Path]:
    """Sockets of engines that run here, or recordings in the user's data folder; the newest first."""
    paths: list[Path] = []
    with contextlib.suppress(OSError, ChannelError):
        if what == "socket":
            paths = [path for path in runtime_dir().iterdir() if path.is_socket()]
        else:
            from platformdirs import user_data_path

            paths = list(user_data_path("herdscope").rglob("*.herd"))
        paths.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    return paths[:MOST_OFFERED]
