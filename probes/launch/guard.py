"""Stands between us and a server that knows nothing of us: starts it, and ends its process group when we are gone.

Run as `python -m probes.launch.guard PARENT_PID COMMAND [ARGUMENT ...]` in a process group of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

POLL_S = 0.1
GRACE_S = 1.5


def main(arguments: list[str]) -> int:
    """Run the command until it ends or the parent does; its exit code (128 + n for signal n)."""
    parent, command = int(arguments[0]), arguments[1:]
    # A stop is sent to the whole group: the server ends by it, and the guard stays to tell its exit code.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", flush=True)
        return 127
    while child.poll() is None:
        if os.getppid() != parent:
            end_group()
        time.sleep(POLL_S)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def end_group() -> None:
    """Ask everything in our process group to end, then kill it, ourselves included."""
    os.killpg(0, signal.SIGTERM)
    time.sleep(GRACE_S)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
