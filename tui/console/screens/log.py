"""The engine's log, all ranks together or one at a time."""

from __future__ import annotations

from collections.abc import Hashable

from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.strip import Strip

from sessions.messages import LogLine
from tui.console.draw.palette import ACCENT, BAD, DIM, TEXT, WARN, slot_ink
from tui.console.draw.row import Row, text_line
from tui.console.draw.units import clock
from tui.console.panels.panel import Panel
from tui.console.screens.screen import ConsoleScreen

DRIVER = -1
"""Stands for the driver among the ranks."""


class LogPanel(Panel):
    """Follows the newest line until scrolled up; left and right choose whose lines are shown."""

    HELP_TEXT = (
        "Output of the engine's processes. Left and right choose all, the driver or one rank; up, down, page up, page "
        "down and the wheel scroll; end follows the newest line again."
    )

    def on_mount(self) -> None:
        self.back = 0
        self.only: int | None = None

    def key(self) -> Hashable:
        return (self.store.log_version, self.back, self.only)

    def title(self) -> str:
        whose = "all ranks" if self.only is None else "driver" if self.only == DRIVER else f"rank {self.only}"
        return f"Engine log · {whose}"

    def subtitle(self) -> str:
        behind = f"{self.back} lines back · end to follow · " if self.back else "following · "
        return f"{behind}← → by rank"

    def rows(self, width: int, height: int) -> list[Strip]:
        lines = self._lines()
        self.back = max(0, min(self.back, len(lines) - height))
        end = len(lines) - self.back
        shown = lines[max(0, end - height) : end]
        if not shown:
            return [text_line(width, " No output yet.", DIM)]
        return [self._row(line, width) for line in shown]

    def _lines(self) -> list[LogLine]:
        if self.only is None:
            return list(self.store.log)
        rank = None if self.only == DRIVER else self.only
        return [line for line in self.store.log if line.rank == rank]

    def _row(self, line: LogLine, width: int) -> Strip:
        row = Row().add(f" {clock(line.t_ns - self.store.began_ns)} ", DIM)
        row.add(f"{'driver' if line.rank is None else f'r{line.rank}':<7}", _ink(line.rank))
        lowered = line.text.lower()
        style = BAD if "error" in lowered or "traceback" in lowered else WARN if "warn" in lowered else TEXT
        return row.add(line.text.expandtabs(4), style).strip(width)

    def on_key(self, event: events.Key) -> None:
        match event.key:
            case "up":
                self.scroll_back(1)
            case "down":
                self.scroll_back(-1)
            case "pageup":
                self.scroll_back(self.content_size.height)
            case "pagedown":
                self.scroll_back(-self.content_size.height)
            case "end":
                self.back = 0
                self.redraw()
            case "right":
                self.choose(1)
            case "left":
                self.choose(-1)
            case _:
                return
        event.stop()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.scroll_back(3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.scroll_back(-3)

    def scroll_back(self, lines: int) -> None:
        """Show older lines (newer when negative)."""
        self.back = max(0, self.back + lines)
        self.redraw()

    def choose(self, by: int) -> None:
        """The next or previous of: all, driver, each rank."""
        ranks = sorted({DRIVER if line.rank is None else line.rank for line in self.store.log})
        choices: list[int | None] = [None, *ranks]
        at = choices.index(self.only) if self.only in choices else 0
        self.only = choices[(at + by) % len(choices)]
        self.back = 0
        self.redraw()


def _ink(rank: int | None) -> Style:
    return ACCENT if rank is None else slot_ink(rank)


class LogScreen(ConsoleScreen):
    """The engine log."""

    MODE = "log"

    def compose_body(self) -> ComposeResult:
        yield LogPanel(self.store, self.view, id="log", classes="box")

    def on_mount(self) -> None:
        self.query_one(LogPanel).focus()
