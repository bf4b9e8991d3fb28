"""The screens that show a session, by mode; each is imported when it is first shown, for a quick first paint."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from tui.console.runs import Runs
from tui.console.screens.screen import ConsoleScreen
from tui.console.sessions import Sessions
from tui.console.store.store import Store
from tui.console.view import View

MODES = ("live", "diagnosis", "bench", "compare", "sessions", "log", "together")


class Subjects(Protocol):
    """What the screens show."""

    store: Store
    view: View
    runs: Runs
    sessions: Sessions
    recordings_folder: Path


def screen_of(mode: str, of: Subjects) -> ConsoleScreen:
    """The screen of one of MODES."""
    store, view = of.store, of.view
    match mode:
        case "live":
            from tui.console.screens.live import LiveScreen

            return LiveScreen(store, view)
        case "diagnosis":
            from tui.console.screens.diagnosis import DiagnosisScreen

            return DiagnosisScreen(store, view)
        case "bench":
            from tui.console.screens.bench import BenchScreen

            return BenchScreen(store, view, of.runs)
        case "compare":
            from tui.console.screens.compare import CompareScreen

            return CompareScreen(store, view, of.runs)
        case "sessions":
            from tui.console.screens.sessions import SessionsScreen

            return SessionsScreen(store, view, of.recordings_folder)
        case "log":
            from tui.console.screens.log import LogScreen

            return LogScreen(store, view)
        case "together":
            from tui.console.screens.together import TogetherScreen

            return TogetherScreen(store, view, of.sessions.beside)
    raise ValueError(f"no screen {mode!r}: choose from {', '.join(MODES)}")
