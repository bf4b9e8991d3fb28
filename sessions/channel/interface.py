"""The channel as its users see it. A consumer cannot tell which carrier is behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from sessions.messages import Command, Message, Reply


class ChannelError(Exception):
    """The channel cannot do what was asked; the text is one line that names the thing and the mend."""


class ChannelClosed(ChannelError):
    """The channel, or the peer at its other end, is gone."""


class RequestTimeout(ChannelError):
    """No reply came in time."""


class Subscription(Protocol):
    """Messages of the kinds asked for, in a bounded queue. Frames are dropped oldest first when it is full."""

    @property
    def dropped(self) -> int:
        """Frames dropped for this reader so far."""
        ...

    def drain(self) -> list[Message]:
        """Take everything that has arrived; never waits."""
        ...

    def get(self, timeout_s: float) -> Message | None:
        """Wait in this thread for the next message; None after `timeout_s`. Raise ChannelClosed when it is gone."""
        ...

    async def next(self, timeout_s: float) -> Message | None:
        """Wait in this event loop for the next message; None after `timeout_s`. Raise ChannelClosed when it is gone."""
        ...

    def on_arrival(self, wake: Callable[[], None]) -> None:
        """Call `wake` when the queue stops being empty; from the carrier's thread, so be quick and thread-safe."""
        ...

    def close(self) -> None: ...


class Channel(Protocol):
    """A peer's end of a channel. All methods may be called from any thread; none but the waits ever blocks."""

    @property
    def source(self) -> str:
        """This peer's source id, put into every message that it makes."""
        ...

    def publish(self, message: Message) -> None:
        """Send to every subscriber of the message's kind, without waiting. Does nothing costly when there is none."""
        ...

    def wanted(self, kind: type[Message]) -> bool:
        """Whether anybody subscribes to `kind` now, so that a publisher need not build what nobody reads."""
        ...

    def subscribe(
        self, kinds: Sequence[type[Message]], sources: Sequence[str] = (), capacity: int = 4096
    ) -> Subscription:
        """Receive messages of `kinds` (all sources, or those named). Retained kinds come at once, last value first."""
        ...

    def request(self, command: Command, timeout_s: float) -> Reply:
        """Send a command and wait in this thread for its reply. Raise RequestTimeout or ChannelClosed."""
        ...

    async def ask(self, command: Command, timeout_s: float) -> Reply:
        """The same for an event loop."""
        ...

    def serve(self, kinds: Sequence[type[Command]]) -> Subscription:
        """Become the one answerer of these commands. Answer each with `answer`; commands are never dropped."""
        ...

    def answer(self, command: Command, reply: Reply) -> None:
        """Send the reply to the peer that asked."""
        ...

    def close(self, reason: str = "") -> None:
        """Say goodbye and release everything, within a second."""
        ...
