"""Where a headless probe sends its messages, and the queue that keeps a slow one from delaying the sampling."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from sessions.messages import Message

CAPACITY = 10_000
CLOSE_TIMEOUT_S = 2.0


class SinkGone(Exception):
    """The sink's other end will take no more; the text says which and why."""


class Sink(Protocol):
    """Takes messages one by one, in a thread of its own; may block for a while. Raise SinkGone when it is over."""

    def write(self, message: Message) -> None: ...

    def close(self) -> None: ...


class QueuedSink:
    """Feeds one sink from a bounded queue in a thread; the oldest messages are dropped, and counted, when it lags.

    `gone` is called once, from that thread, with the reason when the sink will take no more.
    """

    def __init__(self, sink: Sink, gone: Callable[[str], None], capacity: int = CAPACITY) -> None:
        self.dropped = 0
        self._sink = sink
        self._gone = gone
        self._queue: deque[Message] = deque()
        self._capacity = capacity
        self._ready = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"sink-{type(sink).__name__}", daemon=True)
        self._thread.start()

    def publish(self, message: Message) -> None:
        """Hand over a message without waiting."""
        with self._ready:
            if len(self._queue) >= self._capacity:
                self._queue.popleft()
                self.dropped += 1
            self._queue.append(message)
            self._ready.notify()

    def close(self) -> None:
        """Write what is queued, for at most 2 s, and let go of the sink."""
        with self._ready:
            self._closing = True
            self._ready.notify()
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        try:
            while True:
                with self._ready:
                    while not self._queue and not self._closing:
                        self._ready.wait(1.0)
                    if not self._queue:
                        break
                    message = self._queue.popleft()
                self._sink.write(message)
        except SinkGone as error:
            self._gone(str(error))
        finally:
            self._sink.close()
