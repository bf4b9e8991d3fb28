"""One thread that does all input and output of a channel, woken by its users through an eventfd."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

_TICK_S = 0.5


class IoLoop:
    """A selector in a daemon thread. `post` may be called from any thread and costs about a microsecond."""

    def __init__(self, name: str, on_tick: Callable[[], None]) -> None:
        self._selector = selectors.DefaultSelector()
        self._posted: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._awake = False
        self._stopped = False
        self._on_tick = on_tick
        self._selector.register(self._wake_fd, selectors.EVENT_READ, self._run_posted)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def post(self, function: Callable[..., None], *arguments: Any) -> None:
        """Run `function` in the loop's thread, in the order of posting; does nothing once the loop has stopped."""
        if self._stopped:
            return
        self._posted.append((function, arguments))
        if not self._awake:
            self._awake = True
            with contextlib.suppress(OSError):
                os.eventfd_write(self._wake_fd, 1)

    def watch(self, sock: socket.socket, callback: Callable[[int], None], write: bool = False) -> None:
        """Call `callback(mask)` when `sock` can be read (and, with `write`, written). Loop's thread only."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if write else 0)
        if sock in self._selector.get_map():
            self._selector.modify(sock, events, callback)
        else:
            self._selector.register(sock, events, callback)

    def unwatch(self, sock: socket.socket) -> None:
        """Stop watching. Loop's thread only."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(sock)

    def stop(self, timeout_s: float) -> None:
        """Run what was posted, then end the thread."""
        self.post(self._stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _stop(self) -> None:
        self._stopped = True

    def _run(self) -> None:
        due = time.monotonic() + _TICK_S
        while not self._stopped:
            for key, mask in self._selector.select(max(0.0, due - time.monotonic())):
                self._guard(key.data, mask)
            if time.monotonic() >= due:
                self._guard(self._on_tick)
                due = time.monotonic() + _TICK_S
        self._selector.close()
        os.close(self._wake_fd)

    def _run_posted(self, _mask: int) -> None:
        os.eventfd_read(self._wake_fd)
        self._awake = False
        posted = self._posted
        while posted and not self._stopped:
            function, arguments = posted.popleft()
            self._guard(function, *arguments)

    def _guard(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception:
            logger.exception("channel: %s failed; the channel goes on", getattr(function, "__qualname__", function))
