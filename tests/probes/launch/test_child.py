"""Servers as children, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from probes.launch.child import ServerChild
from probes.launch.command_line import CommandLine

SERVER = """
import subprocess, sys, time
worker = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
print('pids', worker.pid, flush=True)
time.sleep(600)
"""


def until(condition: Callable[[], object], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


def test_output_comes_by_line_and_the_exit_code_is_told() -> None:
    lines: list[str] = []
    code = "print('one'); print('two'); raise SystemExit(7)"
    child = ServerChild(CommandLine((sys.executable, "-c", code)), lines.append)
    until(lambda: child.exit_code is not None and len(lines) == 2)
    assert (lines, child.exit_code) == (["one", "two"], 7)


def test_a_program_that_does_not_exist_is_named() -> None:
    lines: list[str] = []
    child = ServerChild(CommandLine(("no-such-server", "serve")), lines.append)
    until(lambda: child.exit_code is not None and lines)
    assert (child.exit_code, lines) == (127, ["cannot start no-such-server: No such file or directory"])


def test_stopping_ends_the_server_and_its_workers() -> None:
    lines: list[str] = []
    child = ServerChild(CommandLine((sys.executable, "-c", SERVER)), lines.append)
    until(lambda: lines)
    worker = int(lines[0].split()[1])
    child.stop()
    assert child.exit_code is not None
    until(lambda: not alive(worker))


def test_kill_minus_9_of_the_launcher_ends_the_server_and_its_workers() -> None:
    code = (
        "import sys, time\n"
        "from probes.launch.child import ServerChild\n"
        "from probes.launch.command_line import CommandLine\n"
        f"child = ServerChild(CommandLine((sys.executable, '-c', {SERVER!r})), lambda text: print(text, flush=True))\n"
        "print('guard', child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    launcher = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    words = [launcher.stdout.readline().split() for _ in range(2)]
    pids = {kind: int(pid) for kind, pid in words}
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait(10)
    until(lambda: not alive(pids["guard"]) and not alive(pids["pids"]), timeout_s=5)
