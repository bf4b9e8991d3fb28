"""The line at the top (what is being looked at) and the line at the bottom (what can be done)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import PurePath

from rich.style import Style
from textual.strip import Strip

from tui.console.draw.palette import (
    ACCENT_STRONG,
    BAD,
    BADGE,
    BADGE_BAD,
    DIM,
    FAINT,
    GOOD,
    KEY,
    STRONG,
    TEXT,
    WARN,
    clickable,
)
from tui.console.draw.row import Row
from tui.console.draw.units import clock
from tui.console.panels.panel import Panel
from tui.console.store.events import Event
from tui.console.store.store import Store
from tui.console.view import View

TABS = (
    ("live", "live", "screen.live"),
    ("diagnosis", "why", "screen.diagnosis"),
    ("bench", "bench", "screen.bench"),
    ("compare", "comp", "screen.compare"),
    ("sessions", "rec", "screen.sessions"),
    ("log", "log", "screen.log"),
)
DIVIDER, GAP = "│ ", "  "
NEWS = ("refused", "alert", "note", "fault")
NEWS_NS = 4_000_000_000


class HeaderBar(Panel, can_focus=False):
    """Model, plan, phase, session time; badges for what must not be missed."""

    def key(self) -> Hashable:
        store = self.store
        seconds = (store.now_ns - store.began_ns) // 1_000_000_000
        shown = (self.view.status, self.view.recording, self.view.replay is None)
        return (store.engine, store.knobs, store.fault is None, store.frames_lost, seconds, shown)

    def rows(self, width: int, height: int) -> list[Strip]:
        store, engine = self.store, self.store.engine
        row = Row().add(" herdscope ", ACCENT_STRONG)
        if engine is not None and engine.model is not None:
            row.add(f" {PurePath(engine.model.name).name}", STRONG)
            ranks = len(engine.ranks)
            parallelism = store.knobs.knobs.parallelism if store.knobs else "pp"
            plan = f"ep {ranks}" if parallelism == "ep" else f"pp {engine.stages}"
            device = engine.hardware or (engine.ranks[0].device if engine.ranks else "")
            row.add(f"  {plan}", TEXT)
            if width >= 100:
                row.add(f"  {engine.model.architecture} {engine.model.dtype}", DIM).add(f"  {device}", DIM)
        row.add("  ")
        self._phase(row)
        right: list[tuple[str, Style]] = []
        if store.frames_lost:
            right.append((f"{store.frames_lost} frames lost ", WARN))
        if self.view.recording:
            right += [(" REC ", BADGE_BAD), (" ", TEXT)]
        if self.view.replay is not None:
            right += [(" REPLAY ", BADGE), (" ", TEXT)]
        if store.emulated:
            right += [(" EMULATED ", BADGE), (" ", TEXT)]
        if store.now_ns:
            right.append((f"{clock(store.now_ns - store.began_ns)} ", DIM))
        return [row.right(width, *right).strip(width)]

    def _phase(self, row: Row) -> None:
        engine = self.store.engine
        if self.view.status:
            row.add(self.view.status, WARN)
        elif self.store.fault is not None:
            row.add(" FAULT ", BADGE_BAD)
        elif engine is not None:
            share = f" {engine.progress * 100:.0f} %" if engine.progress is not None and engine.phase != "ready" else ""
            row.add(engine.phase + share, GOOD if engine.phase == "ready" else WARN)


class FooterBar(Panel, can_focus=False):
    """The screens, and this screen's keys; all clickable. On two lines where one would leave keys out."""

    def __init__(
        self,
        store: Store,
        view: View,
        mode: str,
        entries: Callable[[], list[tuple[str, str, str]]],
    ) -> None:
        super().__init__(store, view, id="footer")
        self._mode = mode
        self._entries = entries

    def key(self) -> Hashable:
        return (tuple(self._entries()), self._news())

    def _news(self) -> Event | None:
        """What was just refused or said: where no event log is in sight, it would be missed."""
        events = self.store.events
        newest = events[-1] if events else None
        if newest is None or newest.category not in NEWS or self.store.now_ns - newest.t_ns > NEWS_NS:
            return None
        return newest

    def lines(self, width: int) -> int:
        """Lines that a terminal of this width needs to show the screens and every key."""
        return 1 if self._screens(short=True).width + self._keys_width() <= width else 2

    def rows(self, width: int, height: int) -> list[Strip]:
        above = height > 1
        full, beside = self._screens(short=False), 0 if above else self._keys_width()
        screens = full if full.width + beside <= width else self._screens(short=True)
        if above:
            return [screens.strip(width), self._say(Row().add(" "), width)]
        return [self._say(screens.add(DIVIDER if self._mode else "", FAINT), width)]

    def _screens(self, short: bool) -> Row:
        """The screens by name; that which is shown always by its full one."""
        row = Row().add(" ")
        for name, short_name, action in TABS if self._mode else ():
            here = name == self._mode
            row.add(self.view.key_of(action), clickable(KEY, action))
            row.add(f" {short_name if short and not here else name}  ", clickable(STRONG if here else DIM, action))
        return row

    def _keys_width(self) -> int:
        """Cells of the divider and all keys with their titles."""
        return len(DIVIDER) + len(GAP.join(f"{key} {title}" for _, key, title in self._entries()))

    def _say(self, row: Row, width: int) -> Strip:
        """`row` with the news, else with as many keys as there is room for, the first ones first."""
        if news := self._news():
            return row.add(news.text, TEXT if news.category == "note" else BAD).strip(width)
        for action, key, title in self._entries():
            if row.width + len(f"{key} {title}") > width:
                break
            row.add(key, clickable(KEY, action))
            row.add(f" {title}{GAP}"[: width - row.width], clickable(DIM, action))
        return row.strip(width)
