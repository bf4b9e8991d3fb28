"""The verdict line: what is wrong, what would fix it, what that would gain."""

from __future__ import annotations

from collections.abc import Hashable

from textual.strip import Strip

from tui.console.draw.palette import DIM, KEY, LEVELS, STRONG, clickable
from tui.console.draw.row import Row
from tui.console.panels.panel import Panel

GLYPHS = {"healthy": "●", "warning": "▲", "problem": "■", "unknown": "○"}


class VerdictPanel(Panel):
    """One line, or two where there is room."""

    HELP_TEXT = "The diagnosis in one line, with the fix and the gain that it predicts. 2 opens its evidence."

    def key(self) -> Hashable:
        return (self.store.verdict, self.store.engine is None)

    def rows(self, width: int, height: int) -> list[Strip]:
        verdict = self.store.verdict
        if verdict is None:
            return [Row().add(" ○ ", DIM).add("No verdict yet", DIM).strip(width)]
        style = LEVELS[verdict.level]
        row = Row().add(f" {GLYPHS[verdict.level]} ", style).add(verdict.text, style)
        if not verdict.fix:
            return [row.strip(width)]
        fix_style = clickable(STRONG, verdict.action) if verdict.action else STRONG
        fix = Row().add("  ")
        if verdict.action:
            fix.add(self.view.key_of(verdict.action), clickable(KEY, verdict.action)).add(" ")
        fix.add("fix: ", DIM).add(verdict.fix, fix_style)
        if height >= 2 and row.width + fix.width > width:
            return [row.strip(width), Row().add(" ").extend(fix).strip(width)]
        return [row.extend(fix).strip(width)]
