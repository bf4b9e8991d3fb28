"""The screens that show a session, by mode; each is imported when it is first shown, for a quick first paint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui.console.screens.screen import ConsoleScreen

if TYPE_CHECKING:
    from tui.console.app import ConsoleApp

MODES = ("live", "diagnosis", "bench", "compare", "sessions", "log", "together")


def screen_of(mode: str, app: ConsoleApp) -> ConsoleScreen:
    """The screen of one of MODES."""
    store, view = app.store, app.view
    match mode:
        case "live":
            from tui.console.screens.live import LiveScreen

            return LiveScreen(store, view)
        case "diagnosis":
            from tui.console.screens.diagnosis import DiagnosisScreen

            return DiagnosisScreen(store, view)
        case "bench":
            from tui.console.screens.bench import BenchScreen

            return BenchScreen(store, view, app.runs)
        case "compare":
            from tui.console.screens.compare import CompareScreen

            return CompareScreen(store, view, app.runs)
        case "sessions":
            from tui.console.screens.sessions import SessionsScreen

            return SessionsScreen(store, view, app.recordings_folder)
        case "log":
            from tui.console.screens.log import LogScreen

            return LogScreen(store, view)
        case "together":
            from tui.console.screens.together import TogetherScreen

            return TogetherScreen(store, view, app.sessions.beside)
    raise ValueError(f"no screen {mode!r}: choose from {', '.join(MODES)}")
