"""What the console's screens share: header, footer, and panels that tick with the frame clock."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import Screen

from tui.console.actions import ACTIONS
from tui.console.panels.bars import FooterBar, HeaderBar
from tui.console.panels.panel import Panel
from tui.console.panels.replay_bar import ReplayBar
from tui.console.store.store import Store
from tui.console.view import View

COMPACT_WIDTH, COMPACT_HEIGHT = 100, 32


class ConsoleScreen(Screen[None]):
    """A full screen. Subclasses compose their body and may lay it out for the size. MODE names the screen among those
    that show a session; it is empty for the launcher."""

    MODE = ""

    def __init__(self, store: Store, view: View) -> None:
        super().__init__()
        self.store = store
        self.view = view
        self._footer_lines = 1

    def compose(self) -> ComposeResult:
        yield HeaderBar(self.store, self.view, id="header")
        yield from self.compose_body()
        yield ReplayBar(self.store, self.view, id="replay-bar")
        yield FooterBar(self.store, self.view, self.MODE, self.footer_entries)

    def compose_body(self) -> ComposeResult:
        """The widgets between header and footer."""
        raise NotImplementedError

    def footer_entries(self) -> list[tuple[str, str, str]]:
        """(action, key, title) of what the footer shows here."""
        return [
            (action.id, self.view.key_of(action.id), action.footer)
            for action in ACTIONS
            if action.footer and (self.MODE in action.modes if action.modes else self.MODE or action.without_session)
        ]

    def on_resize(self) -> None:
        footer, width = self.query_one(FooterBar), self.app.size.width
        self._footer_lines = footer.lines(width)
        footer.styles.height = self._footer_lines
        height = self.app.size.height - self._scrub_bar_lines()
        self.set_class(width < COMPACT_WIDTH or height < COMPACT_HEIGHT, "compact")
        self.lay_out(width, self.room())

    def room(self) -> int:
        """Lines of the terminal, without those of a replay's scrub bar and of a footer's second line."""
        return self.app.size.height - self._scrub_bar_lines() - (self._footer_lines - 1)

    def _scrub_bar_lines(self) -> int:
        return ReplayBar.LINES if self.view.replay is not None else 0

    def lay_out(self, width: int, height: int) -> None:
        """Give the panels their sizes in the lines that there are (see `room`); called when those, or the number of
        ranks, change."""

    def tick(self) -> None:
        """One frame."""
        bar, wanted = self.query_one("#replay-bar"), self.view.replay is not None
        if bar.display != wanted:
            bar.display = wanted
            self.on_resize()
        for panel in self.query(Panel):
            if panel.display:
                panel.tick()
