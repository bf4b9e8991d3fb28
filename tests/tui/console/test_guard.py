"""What ends the console when its event loop cannot: a terminal that is gone, a signal, and a loop that hangs."""

from __future__ import annotations

import os
import pty
import signal
from pathlib import Path

import pytest

from tests.tui.console.terminal import Terminal
from tui.console.guard import terminal_gone

HANGING = """
import time
from pathlib import Path
from tests.tui.console.fakes import FakeSession
from tests.tui.console.feed import herd
from tui.console.app import ConsoleApp
from tui.console.options import ConsoleOptions

class Session(FakeSession):
    def close(self):
        Path({out!r}).write_text("ended")

app = ConsoleApp(ConsoleOptions(), Session(herd(), 2.0), data=Path("/nonexistent"))
app.call_later(lambda: app.set_timer(0.5, lambda: time.sleep(60)))
app.run()
"""


def test_a_terminal_that_was_closed_is_noticed() -> None:
    ours, theirs = pty.openpty()
    assert not terminal_gone(theirs)
    os.close(ours)
    assert terminal_gone(theirs)
    os.close(theirs)


@pytest.mark.parametrize("how", ["terminal", "signal"])
def test_a_loop_that_hangs_does_not_keep_the_engine(tmp_path: Path, how: str) -> None:
    out = tmp_path / "ended"
    terminal = Terminal({}, program=HANGING.format(out=str(out)))
    try:
        assert terminal.wait_for(rb"herdscope")
        terminal.read(1.5)
        if how == "terminal":
            terminal.hang_up()
        else:
            os.kill(terminal.pid, signal.SIGTERM)
        code = terminal.exit_code(20.0)
        assert code is not None and code != 0
        assert out.read_text() == "ended"
    finally:
        terminal.end()
