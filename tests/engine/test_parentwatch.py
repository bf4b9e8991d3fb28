"""A child ends when its parent is killed outright."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHILD = (
    "import os, sys, time; from engine import parentwatch as p; {guard}; print(os.getpid(), flush=True); time.sleep(60)"
)
PARENT = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', sys.argv[1]]); time.sleep(60)"


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("guard", ["p.kill_on_parent_death()", "p.watch_parent(os.getppid())"])
def test_child_ends_when_parent_is_killed(guard: str) -> None:
    command = [sys.executable, "-c", PARENT, CHILD.format(guard=guard)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert _alive(child)
        parent.kill()
        deadline = time.monotonic() + 5
        while _alive(child) and time.monotonic() < deadline:
            time.sleep(0.02)
        survived = _alive(child)
        if survived:
            os.kill(child, signal.SIGKILL)
    assert not survived


@pytest.mark.parametrize("guard", ["kill_on_parent_death", "watch_parent"])
def test_parent_that_is_already_gone_is_noticed(guard: str) -> None:
    code = f"import os; from engine.parentwatch import {guard}; {guard}(os.getppid() + 1); print('alive')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == 3
    assert done.stdout == ""


def test_what_must_run_first_runs_first() -> None:
    code = (
        "import os; from engine.parentwatch import watch_parent;"
        "watch_parent(os.getppid() + 1, lambda: print('cleaned', flush=True))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stdout == "cleaned\n"
