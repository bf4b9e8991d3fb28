"""Who gets which message: subscriptions, retained values, commands and their servers, arrivals and departures.

No sockets and no threads: the hub calls it from one thread, and it calls the ports.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Protocol

from sessions.channel.interface import ChannelError
from sessions.clock import Clock
from sessions.codec import encode
from sessions.messages import RETAINED, Command, EngineState, Fault, Goodbye, Message, Reply, kind_of

MAX_SUBSCRIPTIONS = 256
MAX_RETAINED = 1024
MAX_ANSWERED = 4096
MAX_UNANSWERED = 16_384
_RETAINED = frozenset(RETAINED)
_OUTLIVE_THEIR_SOURCE = (Fault, EngineState)


class Parcel:
    """A message and its bytes, encoded at most once however many readers there are."""

    __slots__ = ("_payload", "message")

    def __init__(self, message: Message, payload: bytes | None = None) -> None:
        self.message = message
        self._payload = payload

    @property
    def payload(self) -> bytes:
        """The message as MessagePack."""
        if self._payload is None:
            self._payload = encode(self.message)
        return self._payload


class Port(Protocol):
    """One party at the hub: a connected peer, or the hub's own endpoint."""

    @property
    def name(self) -> str: ...
    def deliver(self, parcel: Parcel) -> None: ...
    def deliver_for(self, sub: int, parcel: Parcel, command: bool) -> None: ...
    def deliver_reply(self, parcel: Parcel) -> None: ...
    def tell_wanted(self, kinds: frozenset[str]) -> None: ...
    def confirm(self, sub: int) -> None: ...
    def refuse(self, sub: int, reason: str) -> None: ...


class _Party:
    """A port's subscriptions, compiled to kind -> sources (None: all)."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self.subs: dict[int, tuple[frozenset[str], frozenset[str]]] = {}
        self.serves: dict[int, frozenset[str]] = {}
        self.kinds: dict[str, frozenset[str] | None] = {}

    def compile(self) -> None:
        self.kinds = {}
        for kinds, sources in self.subs.values():
            for kind in kinds:
                known = self.kinds.get(kind, frozenset())
                self.kinds[kind] = None if known is None or not sources else known | sources

    def wants(self, kind: str, source: str) -> bool:
        sources = self.kinds.get(kind, frozenset())
        return sources is None or source in sources


class _Pending:
    """A command on its way: who asked, who answers."""

    __slots__ = ("asker", "server")

    def __init__(self, asker: Port, server: Port) -> None:
        self.asker = asker
        self.server = server


class Router:
    """Routes messages between ports. `source` is the hub's own id, which announces departures."""

    def __init__(self, source: str, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._parties: dict[int, _Party] = {}
        self._servers: dict[str, tuple[Port, int]] = {}
        self._retained: OrderedDict[tuple[str, str], Parcel] = OrderedDict()
        self._pending: OrderedDict[tuple[str, str], _Pending] = OrderedDict()
        self._answered: OrderedDict[tuple[str, str], Parcel] = OrderedDict()
        self._wanted: frozenset[str] = frozenset()

    def attach(self, port: Port) -> None:
        """A party joined."""
        self._parties[id(port)] = _Party(port)
        port.tell_wanted(self._wanted)

    def detach(self, port: Port, reason: str, expected: bool) -> None:
        """A party left: forget it, fail what it was asked, and tell everybody."""
        if self._parties.pop(id(port), None) is None:
            return
        self._servers = {kind: entry for kind, entry in self._servers.items() if entry[0] is not port}
        for key, pending in list(self._pending.items()):
            if pending.server is port:
                self.reply(self._failure(key, f"{port.name} is gone: {reason}"))
            elif pending.asker is port:
                del self._pending[key]
        if not any(party.port.name == port.name for party in self._parties.values()):
            self._forget_retained(port.name)
        self._refresh_wanted()
        gone = Goodbye(source=self._source, t_ns=self._clock.now_ns(), peer=port.name, reason=reason, expected=expected)
        self.publish(Parcel(gone))

    def publish(self, parcel: Parcel) -> None:
        """Hand a message to every port that wants it, and keep it when its kind is retained."""
        message = parcel.message
        kind = kind_of(message)
        if type(message) in _RETAINED:
            self._retain((kind, message.source), parcel)
        if isinstance(message, EngineState) and message.phase == "ready":
            self._retained.pop((kind_of(Fault), message.source), None)
        for party in tuple(self._parties.values()):
            if party.wants(kind, message.source):
                party.port.deliver(parcel)

    def subscribe(self, port: Port, sub: int, kinds: Iterable[str], sources: Iterable[str]) -> None:
        """Add (or replace) a subscription; its retained values follow at once. Raise ChannelError over the limit."""
        party = self._parties.get(id(port))
        if party is None:
            return
        if len(party.subs) + len(party.serves) >= MAX_SUBSCRIPTIONS:
            raise ChannelError(f"more than {MAX_SUBSCRIPTIONS} subscriptions: close some first")
        wanted_kinds, wanted_sources = frozenset(kinds), frozenset(sources)
        party.subs[sub] = (wanted_kinds, wanted_sources)
        party.compile()
        self._refresh_wanted()
        for (kind, source), parcel in tuple(self._retained.items()):
            if kind in wanted_kinds and (not wanted_sources or source in wanted_sources):
                port.deliver_for(sub, parcel, command=False)
        port.confirm(sub)

    def serve(self, port: Port, sub: int, kinds: Iterable[str]) -> None:
        """Make `port` the answerer of these commands, or refuse when another is. Raise ChannelError over the limit."""
        party = self._parties.get(id(port))
        if party is None:
            return
        if len(party.subs) + len(party.serves) >= MAX_SUBSCRIPTIONS:
            raise ChannelError(f"more than {MAX_SUBSCRIPTIONS} subscriptions: close some first")
        kinds = frozenset(kinds)
        for kind in sorted(kinds):
            if kind in self._servers:
                port.refuse(sub, f"{kind} is served by {self._servers[kind][0].name} already")
                return
        party.serves[sub] = kinds
        for kind in kinds:
            self._servers[kind] = (port, sub)

    def unsubscribe(self, port: Port, sub: int) -> None:
        """End a subscription, or a serving."""
        party = self._parties.get(id(port))
        if party is None:
            return
        party.subs.pop(sub, None)
        for kind in party.serves.pop(sub, frozenset()):
            self._servers.pop(kind, None)
        party.compile()
        self._refresh_wanted()

    def command(self, port: Port, parcel: Parcel) -> None:
        """Hand a command to its server once, however often it comes; a repetition gets the same reply again."""
        command = parcel.message
        assert isinstance(command, Command)
        key = (command.source, command.id)
        answered = self._answered.get(key)
        if answered is not None:
            port.deliver_reply(answered)
            return
        if key in self._pending:
            self._pending[key].asker = port
            return
        self.publish(parcel)
        kind = kind_of(command)
        if kind not in self._servers:
            port.deliver_reply(self._failure(key, f"nobody here serves {kind}"))
            return
        server, sub = self._servers[kind]
        self._pending[key] = _Pending(port, server)
        if len(self._pending) > MAX_UNANSWERED:
            self.reply(self._failure(next(iter(self._pending)), "too many unanswered commands"))
        server.deliver_for(sub, parcel, command=True)

    def reply(self, parcel: Parcel) -> None:
        """Hand a reply to the asker, and to subscribers of its kind. A second reply to one command is dropped."""
        reply = parcel.message
        assert isinstance(reply, Reply)
        key = (reply.to, reply.id)
        pending = self._pending.pop(key, None)
        if pending is None:
            return
        self._answered[key] = parcel
        if len(self._answered) > MAX_ANSWERED:
            self._answered.popitem(last=False)
        pending.asker.deliver_reply(parcel)
        self.publish(parcel)

    def _failure(self, key: tuple[str, str], reason: str) -> Parcel:
        to, command_id = key
        now = self._clock.now_ns()
        return Parcel(Reply(source=self._source, t_ns=now, id=command_id, to=to, ok=False, reason=reason))

    def _retain(self, key: tuple[str, str], parcel: Parcel) -> None:
        self._retained[key] = parcel
        self._retained.move_to_end(key)
        if len(self._retained) > MAX_RETAINED:
            self._retained.popitem(last=False)

    def _forget_retained(self, source: str) -> None:
        for key, parcel in list(self._retained.items()):
            if key[1] == source and not isinstance(parcel.message, _OUTLIVE_THEIR_SOURCE):
                del self._retained[key]

    def _refresh_wanted(self) -> None:
        wanted = frozenset(kind for party in self._parties.values() for kind in party.kinds)
        if wanted != self._wanted:
            self._wanted = wanted
            for party in tuple(self._parties.values()):
                party.port.tell_wanted(wanted)
