"""The screens that show a session, by mode; each is imported when it is first shown, for a quick first paint."""

from __future__ import annotations

from pathlib import Path

from tui.console.runs import Runs
from tui.console.screens.screen import ConsoleScreen
from tui.console.store.store import Store
from tui.console.view import View

MODES = ("live", "diagnosis", "bench", "compare", "sessions", "log")


def screen_of(mode: str, store: Store, view: View, runs: Runs, recordings: Path) -> ConsoleScreen:
    """The screen of one of MODES."""
    match mode:
        case "live":
            from tui.console.screens.live import LiveScreen

            return LiveScreen(store, view)
        case "diagnosis":
            from tui.console.screens.diagnosis import DiagnosisScreen

            return DiagnosisScreen(store, view)
        case "bench":
            from tui.console.screens.bench import BenchScreen

            return BenchScreen(store, view, runs)
        case "compare":
            from tui.console.screens.compare import CompareScreen

            return CompareScreen(store, view, runs)
        case "sessions":
            from tui.console.screens.sessions import SessionsScreen

            return SessionsScreen(store, view, recordings)
        case "log":
            from tui.console.screens.log import LogScreen

            return LogScreen(store, view)
    raise ValueError(f"no screen {mode!r}: choose from {', '.join(MODES)}")
