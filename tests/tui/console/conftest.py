"""The console on a synthetic session: no clock, no signals, no files of the user's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tui.console.fakes import FakeSession
from tui.console.app import ConsoleApp
from tui.console.options import ConsoleOptions


@pytest.fixture
def console(tmp_path: Path) -> Callable[..., ConsoleApp]:
    """Builds a console that shows `session` (the launcher without one); the test calls `frame`."""

    def build(session: FakeSession | None = None, **options: object) -> ConsoleApp:
        chosen = ConsoleOptions(**options)  # type: ignore[arg-type]
        return ConsoleApp(chosen, session, data=tmp_path, clock=False, guard=False)

    return build
