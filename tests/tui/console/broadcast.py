"""A channel within the process, and a session that shows what comes over it, at a time that stands still."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from sessions.channel.interface import ChannelClosed, RequestTimeout
from sessions.messages import Command, Message, Reply
from tui.console.store.store import Store


class FrozenClock:
    """Shows `t_ns` until somebody sets it on."""

    def __init__(self, t_ns: int) -> None:
        self.t_ns = t_ns

    def now_ns(self) -> int:
        return self.t_ns


class Inbox:
    """One reader's queue."""

    dropped = 0

    def __init__(self, kinds: Iterable[type[Message]]) -> None:
        self.kinds = frozenset(kinds)
        self._queue: deque[Message] = deque()
        self._ended = False

    def put(self, message: Message) -> None:
        if type(message) in self.kinds:
            self._queue.append(message)

    def drain(self) -> list[Message]:
        taken = []
        while self._queue:
            taken.append(self._queue.popleft())
        return taken

    def get(self, timeout_s: float) -> Message | None:
        if self._queue:
            return self._queue.popleft()
        if self._ended:
            raise ChannelClosed("the session ended")
        return None

    async def next(self, timeout_s: float) -> Message | None:
        return self.get(timeout_s)

    def close(self) -> None:
        self._ended = True


class Broadcast:
    """Hands on what the test publishes, as a session's channel does; it answers nothing."""

    source = "host-abc123/console/2"

    def __init__(self) -> None:
        self._readers: list[Inbox] = []

    def subscribe(self, kinds: Sequence[type[Message]], sources: Sequence[str] = (), capacity: int = 4096) -> Inbox:
        self._readers.append(Inbox(kinds))
        return self._readers[-1]

    def publish(self, message: Message) -> None:
        for reader in self._readers:
            reader.put(message)

    async def ask(self, command: Command, timeout_s: float) -> Reply:
        raise RequestTimeout(f"no reply within {timeout_s:g} s")

    def close(self, reason: str = "") -> None:
        pass


class BroadcastSession:
    """A live session: what has come, at the clock's time."""

    title = "synthetic"
    read_only = "no engine is connected"
    address: str | None = None
    status = ""
    failure: str | None = None
    restartable = False

    def __init__(self, channel: Broadcast, clock: FrozenClock) -> None:
        self.channel = channel
        self._clock = clock
        self._inbox = channel.subscribe(Store().kinds)

    def open(self) -> None:
        pass

    def fill(self, store: Store) -> None:
        store.apply(self._inbox.drain())
        store.advance(self._clock.now_ns())

    def restart(self) -> None:
        pass

    def close(self) -> None:
        self._inbox.close()
