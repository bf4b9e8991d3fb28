"""Ends the session whatever ends the console: signals, a terminal that closed, an event loop that hangs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
POLL_S = 0.5
GRACE_S = 2.0
"""How long the event loop has to leave by itself before the process is ended for it."""


class Guard:
    """Handles SIGTERM, SIGHUP and SIGINT, and watches the terminal from a thread, which works when the loop hangs.

    leave: asks the application to exit (called in the loop). finish: ends everything that the console started (called
    from the thread, only when the loop did not leave within the grace period).
    """

    def __init__(self, leave: Callable[[], None], finish: Callable[[], None], terminal: int | None = 0) -> None:
        self._leave = leave
        self._finish = finish
        self._terminal = terminal if terminal is not None and os.isatty(terminal) else None
        self._asked = threading.Event()
        self._over = threading.Event()
        self._signal: int = signal.SIGHUP
        self._before: dict[signal.Signals, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._watch, name="terminal-watchdog", daemon=True)

    def start(self) -> None:
        """Begin; call in the running loop of the main thread."""
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        self._thread.start()

    def stop(self) -> None:
        """The application has ended and cleaned up."""
        self._over.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: object) -> None:
        # A plain handler runs also while the loop is stuck in a wait, where the loop's own handlers would not.
        self._signal = number
        self._ask()

    def _ask(self) -> None:
        self._asked.set()
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has closed meanwhile
                self._loop.call_soon_threadsafe(self._leave)

    def _watch(self) -> None:
        while not self._over.is_set() and not self._asked.wait(POLL_S):
            if self._terminal is not None and terminal_gone(self._terminal):
                self._ask()
        if not self._over.wait(GRACE_S):
            self._finish()
            os._exit(128 + self._signal)


def terminal_gone(terminal: int) -> bool:
    """Whether the terminal behind this file descriptor has been closed."""
    poller = select.poll()
    try:
        poller.register(terminal, select.POLLHUP | select.POLLERR)
        return any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poller.poll(0))
    except OSError:
        return True
