"""A console in a real pseudo-terminal, and the processes that it leaves behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
import uuid
from pathlib import Path

MARK = "HERDSCOPE_TEST_MARK"
ESCAPES = re.compile(rb"\x1b\[[0-9;?<>=]*\$?[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]|\x1b\][^\x07]*\x07")

PROGRAM = """
import sys
from tui.cli.engine_defaults import resolve
from tui.console.app import run_console
from tui.console.options import ConsoleOptions
sys.exit(run_console(ConsoleOptions(engine=resolve({chosen!r}), concurrency=4, prepare_model={tiny})))
"""


class Terminal:
    """Runs a console of an engine of its own, or another program. All its descendants carry a mark in their
    environment."""

    def __init__(self, chosen: dict[str, object], columns: int = 120, lines: int = 40, program: str = "") -> None:
        self.mark = uuid.uuid4().hex
        program = program or PROGRAM.format(chosen=chosen, tiny="model" not in chosen)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            # Not the C environment: readline puts the size of the terminal that runs the tests there.
            environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
            environment.update({MARK: self.mark, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1"})
            os.execve(sys.executable, [sys.executable, "-c", program], environment)
        self._raw = b""
        self._code: int | None = None

    def read(self, seconds: float = 0.2) -> None:
        """Take what the console has drawn."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([self.fd], [], [], left)
            if not ready:
                return
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                return
            if not data:
                return
            self._raw += data

    @property
    def text(self) -> bytes:
        """What has been drawn since the last `forget`, without the escape sequences."""
        return ESCAPES.sub(b"", self._raw)

    def wait_for(self, pattern: bytes, seconds: float = 90.0, every: float = 0.2) -> bool:
        """Read until the pattern has been drawn since the last `forget`; look `every` so many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if re.search(pattern, self.text):
                return True
            self.read(every)
        return False

    def forget(self) -> None:
        """Look only at what is drawn from now on."""
        self._raw = b""

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.fd, keys)

    def exit_code(self, seconds: float = 20.0) -> int | None:
        """Wait for the console's end (negative: the signal that ended it); None when it still runs."""
        deadline = time.monotonic() + seconds
        while self._code is None and time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
            elif self.fd >= 0:
                self.read(0.05)
            else:
                time.sleep(0.05)
        return self._code

    def hang_up(self) -> None:
        """Close the terminal, as a closed window or a lost connection does."""
        os.close(self.fd)
        self.fd = -1

    def processes(self) -> dict[int, str]:
        """Command lines of the console and everything that it started, by process id; ended ones are left out."""
        found = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdecimal():
                continue
            try:
                if f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
        return {pid: line for pid, line in found.items() if line}

    def wait_until_gone(self, seconds: float) -> dict[int, str]:
        """What is left after at most `seconds`."""
        deadline = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def end(self) -> None:
        """End everything, whatever the test did."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.exit_code(2.0)
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
