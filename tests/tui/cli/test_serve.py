"""`herdscope serve` as a process."""

from __future__ import annotations

import signal
import subprocess
import sys

COMMAND = [sys.executable, "-m", "tui.cli.main", "serve", "--emulate", "8x-rtx-pro-6000", "--model", "qwen3-30b-a3b"]


def test_ctrl_c_at_the_instant_it_serves_leaves_no_traceback() -> None:
    for _ in range(2):
        with subprocess.Popen([*COMMAND, "--http", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                assert "Ctrl-C ends it" in process.stderr.readline()
                process.send_signal(signal.SIGINT)
                _, said = process.communicate(timeout=30)
                assert said.split() in (["interrupted"], ["stopped"]), "as early as that, or once the server stops"
            finally:
                process.kill()
