"""End this process when the one that started it is gone, also when that one was killed outright.

Two guards. The kernel's parent-death signal acts at once, but it follows the *thread* that started the process, so it
fits only processes started by a thread that lives as long as their parent does. The watchdog thread polls the parent's
pid and fits every process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
POLL_S = 0.1
EXIT_ORPHANED = 3
"""Exit code of a process that ended because its parent had."""


def kill_on_parent_death(parent_pid: int | None = None) -> None:
    """Ask the kernel to kill this process when the thread that started it ends (Linux; elsewhere does nothing).

    Call it only where a long-lived thread, such as a main thread, started this process. The signal does not come for a
    parent that died before the call: name it with `parent_pid`, and this process then ends at once.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(EXIT_ORPHANED)


def watch_parent(parent_pid: int, on_death: Callable[[], None] | None = None) -> threading.Thread:
    """Start a daemon thread that ends this process at once when `parent_pid` is no longer its parent.

    `on_death` runs first (to remove files, say); it must be quick, and what it raises is dropped. The check runs every
    POLL_S, and once before this returns, so that a parent which died before the call is noticed too.
    """

    def orphaned() -> bool:
        return os.getppid() != parent_pid

    def end() -> None:
        try:
            if on_death is not None:
                on_death()
        finally:
            os._exit(EXIT_ORPHANED)

    def watch() -> None:
        while not orphaned():
            time.sleep(POLL_S)
        end()

    if orphaned():
        end()
    thread = threading.Thread(target=watch, name="parent-watch", daemon=True)
    thread.start()
    return thread
