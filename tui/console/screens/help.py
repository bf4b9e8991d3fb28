"""Help: what the focused panel shows, and every key."""

from __future__ import annotations

from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from tui.console.actions import ACTIONS
from tui.console.draw.palette import ACCENT_STRONG, DIM, KEY, TEXT
from tui.console.panels.panel import Panel
from tui.console.view import View


class HelpScreen(ModalScreen[None]):
    """Over any screen; any of its keys closes it."""

    BINDINGS = [Binding("escape,q,question_mark,f1", "dismiss", "close", show=False)]

    def __init__(self, view: View, over: Screen[Any]) -> None:
        super().__init__()
        self._view = view
        self._over = over

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help-box", classes="dialog") as box:
            box.border_title = "Help"
            box.border_subtitle = "esc closes"
            with Horizontal(id="help-columns"):
                yield Static(self._keys(), id="help-keys")
                yield Static(self._panels(), id="help-panels")

    def on_mount(self) -> None:
        self.query_one("#help-box").focus()

    def _panels(self) -> Text:
        text = Text()
        focused = self._over.focused
        panels = [panel for panel in self._over.query(Panel) if panel.HELP_TEXT and panel.display]
        panels.sort(key=lambda panel: panel is not focused)
        for panel in panels:
            name = panel.title().split(" · ")[0] or (panel.id or "").capitalize()
            text.append(name + (" (focused)" if panel is focused else ""), ACCENT_STRONG)
            text.append(f"\n{panel.HELP_TEXT}\n\n", TEXT)
        return text

    def _keys(self) -> Text:
        text = Text()
        group = ""
        for action in ACTIONS:
            if action.group != group:
                group = action.group
                text.append(f"{group}\n", ACCENT_STRONG)
            text.append(f" {self._view.key_of(action.id):>5}  ", KEY)
            text.append(f"{action.title}\n", TEXT)
        text.append("\n  tab moves between panels; lines and keys can be clicked.", DIM)
        return text
