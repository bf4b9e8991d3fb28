"""Faults of the engine: a dialog says what died, and offers to start it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.app import App

from sessions.messages import Fault


class Faults:
    """Shows the fault that there is, once; closes the dialog of one that is over."""

    def __init__(self, app: App[Any], restart: Callable[[], None]) -> None:
        self._app = app
        self._restart = restart
        self._shown: Fault | None = None

    def show(self, fault: Fault | None, restartable: bool) -> None:
        """The fault of now; `restartable` when the session can start its engine again."""
        if fault == self._shown:
            return
        self._shown = fault
        from tui.console.screens.fault import FaultDialog

        if isinstance(self._app.screen, FaultDialog):
            self._app.screen.dismiss(False)
        if fault is not None:
            self._app.push_screen(FaultDialog(fault, fault.restartable and restartable), self._answered)

    def _answered(self, restart: bool | None) -> None:
        if restart:
            self._restart()
