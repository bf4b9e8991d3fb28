"""Child processes of the console that are commands of ours: the background load, benchmarks."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from typing import IO

STOP_TIMEOUT_S = 3.0


class Child:
    """One `herdscope` command. It never touches the terminal: its output goes to files that are read afterwards.

    A child that uses the engine's channel ends by itself when the engine does, so it does not outlive a console that
    was killed.
    """

    def __init__(self, arguments: list[str]) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the child is of interest)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tui.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._errors,
        )

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def output(self) -> bytes:
        """What it has written to standard output; ask only after its end, for the file's position is shared."""
        return _whole(self._output)

    def last_error(self) -> str:
        """The last line of its standard error; ask only after its end."""
        lines = _whole(self._errors).decode(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("error: ") if lines else ""

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; None when it still runs after `timeout_s`."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """End it."""
        end(self._process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a child: politely, then not."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_S)


def _whole(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
