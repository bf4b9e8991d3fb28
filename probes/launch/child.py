"""A server as a child process: its output by line, its end noticed, ended with us."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable

from probes.launch.command_line import CommandLine

TERM_TIMEOUT_S = 20.0
KILL_TIMEOUT_S = 5.0
KEPT_LINES = 200


class ServerChild:
    """Runs a command line under a guard, in a process group that ends when this process does, also by kill -9.

    `on_line` gets each line of its output, from a thread; the last ones stay in `last_lines`. A line that `skip` says
    yes to does neither.
    """

    def __init__(
        self, line: CommandLine, on_line: Callable[[str], None], skip: Callable[[str], bool] = lambda line: False
    ) -> None:
        self.last_lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._on_line = on_line
        self._skip = skip
        self._process = subprocess.Popen(
            [sys.executable, "-m", "probes.launch.guard", str(os.getpid()), *line.words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="server-log", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The guard's process id, which is also the group's."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended (128 + n: by signal n; 127: it could not be started); None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Ask the whole group to end; after 20 s kill it."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(TERM_TIMEOUT_S)
        self._signal(signal.SIGKILL)  # also workers that outlived their server
        self._process.wait(KILL_TIMEOUT_S)
        self._reader.join(KILL_TIMEOUT_S)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # all have ended already
            os.killpg(self.pid, number)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for raw in output:
                text = raw.decode(errors="replace").rstrip()
                if not self._skip(text):
                    self.last_lines.append(text)
                    self._on_line(text)
