"""A session that plays a synthetic feed, and a channel that remembers what it was asked. For tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence

from sessions.channel.interface import Channel, RequestTimeout
from sessions.messages import Command, KnobReply, KnobRequest, Message, Reply
from tests.tui.console.feed import Feed
from tui.console.store.store import Store


class Silent:
    """A subscription on which nothing ever arrives."""

    dropped = 0

    def drain(self) -> list[Message]:
        return []

    def get(self, timeout_s: float) -> Message | None:
        time.sleep(timeout_s)
        return None

    def close(self) -> None:
        pass


class FakeChannel:
    """Answers every command with `ok` or a refusal; not in time when `silent`; not for the test's length on `hold`."""

    source = "host-abc123/console/2"

    def __init__(self, ok: bool = True, silent: bool = False, hold: bool = False, reason: str = "not now") -> None:
        self.asked: list[Command] = []
        self.published: list[Message] = []
        self.ok = ok
        self.silent = silent
        self.hold = hold
        self.reason = reason

    def subscribe(self, kinds: Sequence[type[Message]], sources: Sequence[str] = (), capacity: int = 4096) -> Silent:
        return Silent()

    def close(self, reason: str = "") -> None:
        pass

    async def ask(self, command: Command, timeout_s: float) -> Reply:
        self.asked.append(command)
        if self.hold:
            await asyncio.sleep(60)
        if self.silent:
            raise RequestTimeout(f"no reply within {timeout_s:g} s")
        common = {"source": "engine", "t_ns": command.t_ns, "id": command.id, "to": self.source, "ok": self.ok}
        common["reason"] = "" if self.ok else self.reason
        if isinstance(command, KnobRequest):
            reply = KnobReply(**common, knob=command.knob, applied=command.value, took_ms=2.0)  # type: ignore[arg-type]
            self.published.append(reply)
            return reply
        return Reply(**common)  # type: ignore[arg-type]


class FakeSession:
    """Fills the store from lists of messages, one a frame."""

    title = "synthetic"
    read_only = "no engine is connected"
    address: str | None = "/run/engine.sock"

    def __init__(self, feed: Feed | None = None, seconds: float = 0.0, channel: Channel | None = None) -> None:
        self.status = ""
        self.failure: str | None = None
        self.channel = channel
        self.restartable = True
        self.restarts = 0
        self.closed = 0
        self.now_ns = feed.start_ns if feed else 0
        self._queue: list[tuple[int, list[Message]]] = []
        if feed is not None:
            self._queue = [(feed.start_ns, feed.opening()), *feed.frames(seconds)]

    def open(self) -> None:
        pass

    def fill(self, store: Store) -> None:
        """Everything queued, as if one frame were late."""
        for now_ns, messages in self._queue:
            store.apply(messages)
            self.now_ns = now_ns
        self._queue = []
        if isinstance(self.channel, FakeChannel):
            store.apply(self.channel.published)
            self.channel.published.clear()
        store.advance(self.now_ns)

    def say(self, messages: Iterable[Message]) -> None:
        """Queue messages for the next frame."""
        self._queue.append((self.now_ns, list(messages)))

    def restart(self) -> None:
        self.restarts += 1

    def close(self) -> None:
        self.closed += 1
