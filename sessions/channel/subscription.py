"""One reader's queue, filled by the carrier's thread and emptied by the reader's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

from sessions.channel.backlog import Backlog
from sessions.channel.interface import ChannelClosed
from sessions.messages import FRAMES, Message

_FRAME_TYPES = frozenset(FRAMES)
MAX_UNREAD = 65_536
"""Most unread messages, frames apart, that a reader may leave before its subscription ends."""


class QueueSubscription:
    """A Subscription (see sessions.channel.interface) of one endpoint."""

    def __init__(
        self,
        sub: int,
        kinds: Sequence[type[Message]],
        sources: Sequence[str],
        capacity: int,
        on_close: Callable[[QueueSubscription], None],
    ) -> None:
        self.sub = sub
        self.kinds = frozenset(kinds)
        self.sources = frozenset(sources)
        self._capacity = max(1, capacity)
        self._on_close = on_close
        self._ready = threading.Condition()
        self._queue: Backlog[Message] = Backlog()
        self._dropped = 0
        self._closed: str | None = None
        self._wake: Callable[[], None] | None = None
        self._waiters: list[Callable[[], None]] = []

    @property
    def dropped(self) -> int:
        """Frames dropped for this reader so far, here and on the way."""
        return self._dropped

    def drain(self) -> list[Message]:
        """Take everything that has arrived; never waits."""
        with self._ready:
            return self._queue.take_all()

    def get(self, timeout_s: float) -> Message | None:
        """Wait in this thread; None after `timeout_s`. Raise ChannelClosed when empty and nothing more can come."""
        with self._ready:
            self._ready.wait_for(lambda: len(self._queue) > 0 or self._closed is not None, timeout_s)
            return self._take_one()

    async def next(self, timeout_s: float) -> Message | None:
        """The same in this event loop."""
        loop = asyncio.get_running_loop()
        arrived = asyncio.Event()

        def waiter() -> None:
            loop.call_soon_threadsafe(arrived.set)

        with self._ready:
            if len(self._queue) or self._closed is not None:
                return self._take_one()
            self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await arrived.wait()
        except TimeoutError:
            pass
        finally:
            with self._ready:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        with self._ready:
            return self._take_one()

    def on_arrival(self, wake: Callable[[], None]) -> None:
        """Call `wake` when the queue stops being empty or the subscription ends; at once when that is so already."""
        with self._ready:
            self._wake = wake
            due = len(self._queue) > 0 or self._closed is not None
        if due:
            wake()

    def close(self) -> None:
        """Stop receiving."""
        self.end("the subscription is closed")
        self._on_close(self)

    # --- the carrier's side ---

    def push(self, message: Message) -> None:
        """Queue a message; at capacity the oldest frame goes. A reader that leaves too much else unread is ended."""
        with self._ready:
            if self._closed is not None:
                return
            was_empty = not len(self._queue)
            frame = type(message) in _FRAME_TYPES
            if frame and self._queue.droppable >= self._capacity:
                self._queue.drop_oldest()
                self._dropped += 1
            overrun = not frame and len(self._queue) - self._queue.droppable >= MAX_UNREAD
            if not overrun:
                self._queue.append(message, frame)
                self._ready.notify()
                calls = self._calls() if was_empty else []
        if overrun:
            self.end(f"the reader left {MAX_UNREAD} messages unread")
            self._on_close(self)
            return
        for call in calls:
            call()

    def count_dropped(self, count: int) -> None:
        """Frames were dropped for this reader before they came here."""
        with self._ready:
            self._dropped += count

    def end(self, reason: str) -> None:
        """Nothing more will come; what is queued can still be read."""
        with self._ready:
            if self._closed is not None:
                return
            self._closed = reason
            self._ready.notify_all()
            calls = self._calls()
        for call in calls:
            call()

    def _calls(self) -> list[Callable[[], None]]:
        calls = self._waiters
        self._waiters = []
        return [*calls, self._wake] if self._wake is not None else calls

    def _take_one(self) -> Message | None:
        if len(self._queue):
            return self._queue.pop()
        if self._closed is not None:
            raise ChannelClosed(self._closed)
        return None
