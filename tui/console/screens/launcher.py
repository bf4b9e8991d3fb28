"""The launcher: what to look at. The best choice starts by itself unless a key is pressed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

from textual.app import ComposeResult
from textual.message import Message

from tui.console.draw.palette import DIM, KEY, STRONG, TEXT, WARN
from tui.console.draw.row import Row
from tui.console.panels.list_panel import ListPanel
from tui.console.screens.screen import ConsoleScreen
from tui.console.session.choices import Choice, choices
from tui.console.store.store import Store
from tui.console.view import View

COUNTDOWN_S = 3.0


class ChoicePanel(ListPanel):
    """The choices, and the countdown of the first."""

    LINES_PER_ITEM = 3
    HELP_TEXT = "Up and down choose, enter opens. The first choice starts by itself after three seconds without a key."

    def __init__(self, store: Store, view: View) -> None:
        super().__init__(store, view, id="choices", classes="box")
        self.offered: list[Choice] = []
        self.seconds_left: int | None = None

    def items(self) -> list[Choice]:
        return self.offered

    def items_key(self) -> Hashable:
        return (len(self.offered), self.offered[0].id if self.offered else "", self.seconds_left)

    def title(self) -> str:
        return "What shall we look at?"

    def subtitle(self) -> str:
        return "↑ ↓ choose · enter opens"

    def item_rows(self, item: Choice, width: int, selected: bool) -> list[Row]:
        usable = not item.unavailable
        first = Row().add(" ▸ " if selected else "   ", KEY).add(item.title, STRONG if usable else DIM)
        if selected and self.seconds_left is not None:
            first.add(f"   starts in {self.seconds_left} s, any key stops this", WARN)
        second = Row().add("   ").add(item.unavailable or item.detail, DIM)
        return [first, second, Row().add(" ")]


class Tagline(ListPanel, can_focus=False):
    """What this is, in one line."""

    def items(self) -> list[str]:
        return ["Why is this MoE deployment slower than it should be, and what would fix it?"]

    def item_rows(self, item: str, width: int, selected: bool) -> list[Row]:
        return [Row().add(f" {item}", TEXT)]


class LauncherScreen(ConsoleScreen):
    """Offers the choices at once; the GPUs are looked for meanwhile, in a thread (`look_for_gpus` None: not at all, and
    nothing starts by itself)."""

    MODE = ""

    class Picked(Message):
        """A choice was made; `path` answers what the choice asks for."""

        def __init__(self, choice: Choice, path: str = "") -> None:
            super().__init__()
            self.choice = choice
            self.path = path

    def __init__(
        self,
        store: Store,
        view: View,
        concurrency: int,
        look_for_gpus: Callable[[], list[str]] | None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(store, view)
        self._now_s = now_s
        self._concurrency = concurrency
        self._look_for_gpus = look_for_gpus
        self._counting = look_for_gpus is not None
        self._seen: list[str] | None = None
        self._gpus: list[str] | None = None
        self._until: float | None = None

    def compose_body(self) -> ComposeResult:
        yield Tagline(self.store, self.view, id="tagline")
        panel = ChoicePanel(self.store, self.view)
        panel.offered = choices([], self._concurrency)
        yield panel

    def on_mount(self) -> None:
        self.panel = self.query_one(ChoicePanel)
        self.panel.focus()

        if self._look_for_gpus is not None:
            threading.Thread(target=self._look, args=(self._look_for_gpus,), name="gpus", daemon=True).start()

    def _look(self, look_for_gpus: Callable[[], list[str]]) -> None:
        self._seen = look_for_gpus()

    def found(self, gpus: list[str]) -> None:
        """The GPUs of this machine are known: offer the best choice, and begin to count down."""
        if gpus != self._gpus and self.is_mounted:
            self._gpus = gpus
            self.panel.offered = choices(gpus, self._concurrency)

    def tick(self) -> None:
        if self._seen is not None:
            self.found(self._seen)
        if self._counting and self._gpus is not None and self.app.screen is self:
            now = self._now_s()
            if self._until is None:
                self._until = now + COUNTDOWN_S
            left = self._until - now
            self.panel.seconds_left = max(1, -int(-left // 1))
            if left <= 0:
                self._stop_counting()
                self._pick(0)
        super().tick()

    def touched(self) -> None:
        """A key was pressed or the mouse used: the first choice no longer starts by itself."""
        if self._counting and self.is_mounted:
            self._stop_counting()

    def _stop_counting(self) -> None:
        self._counting = False
        self.panel.seconds_left = None

    def on_list_panel_chosen(self, event: ListPanel.Chosen) -> None:
        self._pick(event.index)

    def _pick(self, index: int) -> None:
        choice = self.panel.offered[index]
        if choice.unavailable:
            self.notify(choice.unavailable, severity="warning")
        elif choice.asks:
            from tui.console.screens.ask_path import AskPath

            self.app.push_screen(AskPath(choice.asks), lambda path: self._answered(choice, path))
        else:
            self.post_message(self.Picked(choice))

    def _answered(self, choice: Choice, path: str | None) -> None:
        if path:
            self.post_message(self.Picked(choice, path))
