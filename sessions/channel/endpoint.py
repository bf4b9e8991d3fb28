"""A peer's end of a channel, whatever carries it: subscriptions, requests waiting for replies, what is wanted.

The carrier gives it an Uplink to send through, and calls its `receive_*` methods from its own thread.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Protocol

from sessions.channel.interface import ChannelClosed, ChannelError, RequestTimeout
from sessions.channel.subscription import QueueSubscription
from sessions.clock import MonotonicClock
from sessions.messages import FRAMES, KINDS, RETAINED, Command, DroppedFrames, Goodbye, Message, Reply

_FRAME_TYPES = frozenset(FRAMES)
_RETAINED = frozenset(RETAINED)


class Uplink(Protocol):
    """What an endpoint sends through. No call waits; all keep their order."""

    def publish(self, message: Message) -> None: ...
    def subscribe(self, sub: int, kinds: Iterable[type[Message]], sources: Iterable[str]) -> None: ...
    def unsubscribe(self, sub: int) -> None: ...
    def serve(self, sub: int, kinds: Iterable[type[Message]]) -> None: ...
    def command(self, command: Command) -> None: ...
    def reply(self, reply: Reply) -> None: ...
    def close(self, reason: str) -> None: ...


class Endpoint:
    """A Channel (see sessions.channel.interface) over an Uplink."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._subs: dict[int, QueueSubscription] = {}
        self._active: set[int] = set()
        self._by_kind: dict[type[Message], tuple[QueueSubscription, ...]] = {}
        self._told: frozenset[type[Message]] = frozenset()
        self._wanted: frozenset[type[Message]] = frozenset()
        self._pending: dict[str, Future[Reply]] = {}
        self._closed: str | None = None
        self.unknown_kinds: Counter[str] = Counter()
        self._uplink: Uplink

    def attach(self, uplink: Uplink) -> None:
        """Give the endpoint what it sends through, before anybody uses it."""
        self._uplink = uplink

    @property
    def source(self) -> str:
        """This peer's source id."""
        return self._source

    # --- the user's side ---

    def publish(self, message: Message) -> None:
        """Send to every subscriber, without waiting; without one only retained kinds cost anything."""
        kind = type(message)
        if kind in self._wanted or kind in _RETAINED:
            self._uplink.publish(message)

    def wanted(self, kind: type[Message]) -> bool:
        """Whether anybody subscribes to `kind` now."""
        return kind in self._wanted

    def subscribe(
        self, kinds: Sequence[type[Message]], sources: Sequence[str] = (), capacity: int = 4096
    ) -> QueueSubscription:
        """Receive messages of `kinds`; retained ones arrive with their last value. Raise ChannelClosed."""
        with self._lock:
            sub = self._add(kinds, sources, capacity)
            self._wanted |= sub.kinds
            self._uplink.subscribe(sub.sub, kinds, sources)
        return sub

    def serve(self, kinds: Sequence[type[Command]]) -> QueueSubscription:
        """Become the answerer of these commands; when somebody else is already, the subscription ends and says so."""
        with self._lock:
            sub = self._add(kinds, (), 1)
            self._uplink.serve(sub.sub, kinds)
        return sub

    def request(self, command: Command, timeout_s: float) -> Reply:
        """Send a command and wait in this thread for its reply. Raise RequestTimeout or ChannelClosed."""
        future = self._ask(command)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            raise _timeout(command, timeout_s) from None
        finally:
            self._pending.pop(command.id, None)

    async def ask(self, command: Command, timeout_s: float) -> Reply:
        """The same for an event loop."""
        future = self._ask(command)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), timeout_s)
        except TimeoutError:
            raise _timeout(command, timeout_s) from None
        finally:
            self._pending.pop(command.id, None)

    def answer(self, command: Command, reply: Reply) -> None:
        """Send the reply to the peer that asked. Raise ChannelError when it answers another command."""
        if reply.id != command.id or reply.to != command.source:
            raise ChannelError(f"reply to {reply.to} {reply.id} does not answer command {command.source} {command.id}")
        self._uplink.reply(reply)

    def close(self, reason: str = "") -> None:
        """Say goodbye and release everything, within a second."""
        self._uplink.close(reason)
        self.shut(reason or "the channel is closed")

    # --- the carrier's side ---

    def receive_message(self, message: Message) -> None:
        """A published message for all subscriptions that ask for it."""
        for sub in self._by_kind.get(type(message), ()):
            if not sub.sources or message.source in sub.sources:
                sub.push(message)

    def receive_for(self, sub: int, message: Message) -> None:
        """A retained message or a command for one subscription."""
        target = self._subs.get(sub)
        if target is not None:
            target.push(message)

    def receive_confirmation(self, sub: int) -> None:
        """A subscription is in force and has had its retained messages: published ones follow."""
        with self._lock:
            if sub in self._subs:
                self._active.add(sub)
                self._reindex()

    def receive_reply(self, reply: Reply) -> None:
        """The answer to a command of this peer."""
        future = self._pending.pop(reply.id, None)
        if future is not None and future.set_running_or_notify_cancel():
            future.set_result(reply)

    def receive_wanted(self, kinds: Iterable[str]) -> None:
        """The kinds that somebody subscribes to now."""
        with self._lock:
            self._told = frozenset(KINDS[kind] for kind in kinds if kind in KINDS)
            self._refresh_wanted()

    def receive_refusal(self, sub: int, reason: str) -> None:
        """The carrier refused a subscription."""
        target = self._subs.get(sub)
        if target is not None:
            target.end(reason)

    def receive_dropped(self, count: int) -> None:
        """Frames for this peer were dropped on the way, because it reads slowly."""
        for sub in tuple(self._subs.values()):
            if sub.kinds & _FRAME_TYPES:
                sub.count_dropped(count)
        told = DroppedFrames(source=self._source, t_ns=MonotonicClock().now_ns(), count=count)
        self.receive_message(told)

    def lost(self, peer: str, reason: str, expected: bool) -> None:
        """The other end is gone: tell the readers of Goodbye, then end everything."""
        now = MonotonicClock().now_ns()
        goodbye = Goodbye(source=self._source, t_ns=now, peer=peer, reason=reason, expected=expected)
        for sub in tuple(self._subs.values()):
            if Goodbye in sub.kinds:
                sub.push(goodbye)
        self.shut(reason)

    def shut(self, reason: str) -> None:
        """Nothing more will come: end every subscription, fail every pending request."""
        with self._lock:
            self._closed = self._closed or reason
            subs = tuple(self._subs.values())
            futures = tuple(self._pending.values())
            self._pending.clear()
        for sub in subs:
            sub.end(reason)
        for future in futures:
            if future.set_running_or_notify_cancel():
                future.set_exception(ChannelClosed(reason))

    def _add(self, kinds: Sequence[type[Message]], sources: Sequence[str], capacity: int) -> QueueSubscription:
        if self._closed is not None:
            raise ChannelClosed(self._closed)
        sub = QueueSubscription(next(self._ids), kinds, sources, capacity, self._remove)
        self._subs[sub.sub] = sub
        return sub

    def _remove(self, sub: QueueSubscription) -> None:
        with self._lock:
            if self._subs.pop(sub.sub, None) is None:
                return
            self._active.discard(sub.sub)
            self._reindex()
            if self._closed is None:
                self._uplink.unsubscribe(sub.sub)

    def _reindex(self) -> None:
        by_kind: dict[type[Message], tuple[QueueSubscription, ...]] = {}
        for sub in self._subs.values():
            if sub.sub in self._active:
                for kind in sub.kinds:
                    by_kind[kind] = (*by_kind.get(kind, ()), sub)
        self._by_kind = by_kind
        self._refresh_wanted()

    def _refresh_wanted(self) -> None:
        """What others want, and at once (so that nothing published next is missed) what this end has asked for."""
        self._wanted = self._told.union(*(sub.kinds for sub in self._subs.values()))

    def _ask(self, command: Command) -> Future[Reply]:
        with self._lock:
            if self._closed is not None:
                raise ChannelClosed(self._closed)
            future = self._pending.setdefault(command.id, Future())
            self._uplink.command(command)
        return future


def _timeout(command: Command, timeout_s: float) -> RequestTimeout:
    return RequestTimeout(f"no reply to {type(command).__name__} within {timeout_s:g} s")
