"""The sending half of an MQTT peer: what an Endpoint wants to say, as publications."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

import msgspec

from sessions.channel.greeting import hello
from sessions.channel.mqtt.commands import AskedCommands, ReceivedCommands
from sessions.channel.mqtt.link import BrokerLink
from sessions.channel.mqtt.outgoing import Publication
from sessions.channel.mqtt.own_state import OwnState
from sessions.channel.mqtt.topics import Topics
from sessions.codec import encode
from sessions.messages import (
    FRAMES,
    RETAINED,
    Command,
    EngineState,
    Fault,
    Goodbye,
    Message,
    Reply,
    Role,
    kind_of,
)

COMMAND_EXPIRY_S = 10
_CLOSE_TIMEOUT_S = 0.9
_FRAME_TYPES = frozenset(FRAMES)
_RETAINED = frozenset(RETAINED)
_OUTLIVE_THEIR_SOURCE = (Fault, EngineState)


class Subscriber(Protocol):
    """Told, in the link's thread, that a subscription was added."""

    def subscribed(self, sub: int, kinds: frozenset[type[Message]], sources: frozenset[str]) -> None: ...


class MqttUplink:
    """An Uplink (see sessions.channel.endpoint) that publishes through a BrokerLink. Callable from any thread."""

    def __init__(self, source: str, role: Role, topics: Topics, link: BrokerLink, subscriber: Subscriber) -> None:
        self.asked = AskedCommands()
        self.received = ReceivedCommands()
        self.state = OwnState()
        self.subs: dict[int, frozenset[type[Message]]] = {}
        self.serves: dict[int, frozenset[type[Message]]] = {}
        self._source = source
        self._role = role
        self._topics = topics
        self._link = link
        self._subscriber = subscriber

    # --- Uplink ---

    def publish(self, message: Message) -> None:
        kind, payload = kind_of(message), encode(message)
        topic = self._topics.pub(message.source, kind)
        if type(message) in _RETAINED:
            outlives = isinstance(message, _OUTLIVE_THEIR_SOURCE)
            self._put(self.state.keep(topic, payload, outlives))
            if isinstance(message, EngineState) and message.phase == "ready":
                self._clear(self._topics.pub(message.source, kind_of(Fault)))
        else:
            droppable = type(message) in _FRAME_TYPES
            self._put(Publication(topic, payload, qos=0 if droppable else 1, droppable=droppable))

    def subscribe(self, sub: int, kinds: Iterable[type[Message]], sources: Iterable[str]) -> None:
        self.subs[sub] = frozenset(kinds)
        self._interest_changed()
        self._link.post(self._subscriber.subscribed, sub, self.subs[sub], frozenset(sources))

    def unsubscribe(self, sub: int) -> None:
        self.subs.pop(sub, None)
        for kind in self.serves.pop(sub, frozenset()):
            self._clear(self._topics.serve(kind_of(kind), self._source))
        self._interest_changed()

    def serve(self, sub: int, kinds: Iterable[type[Message]]) -> None:
        self.serves[sub] = frozenset(kinds)
        for kind in self.serves[sub]:
            claim = msgspec.msgpack.encode(self._source)
            self._put(self.state.keep(self._topics.serve(kind_of(kind), self._source), claim))
        self._link.refresh_subscriptions()

    def command(self, command: Command) -> None:
        self.asked.ask(command, time.monotonic_ns())
        self.send_command(command)

    def reply(self, reply: Reply) -> None:
        self.received.replied(reply)
        self.send_reply(reply)

    def close(self, reason: str) -> None:
        for publication in self.state.farewell():
            self._put(publication)
        self._put(self.goodbye(reason, expected=True))
        self._link.stop(_CLOSE_TIMEOUT_S)

    # --- for the receiving half ---

    def send_command(self, command: Command) -> None:
        """Publish a command, for the first time or again."""
        topic = self._topics.cmd(kind_of(command), self._source)
        self._put(Publication(topic, encode(command), qos=1, expiry_s=COMMAND_EXPIRY_S))

    def send_reply(self, reply: Reply) -> None:
        """Publish a reply, for the first time or again."""
        self._put(Publication(self._topics.reply(reply.to, self._source), encode(reply), qos=1))

    def send_probe(self, topic: str, payload: bytes) -> None:
        """Publish a ping or a pong: useless when late, so never repeated."""
        self._put(Publication(topic, payload, qos=0, droppable=True))

    def introduce(self, now_ns: int) -> None:
        """Say hello and put all our state at the broker, as after each connection."""
        greeting = hello(self._source, self._role)
        self.state.keep(self._topics.pub(self._source, kind_of(greeting)), encode(greeting))
        self._keep_interest()
        for publication in self.state.everything(now_ns):
            self._put(publication)

    def refresh(self, now_ns: int) -> None:
        """Put our state at the broker again before it expires there."""
        for publication in self.state.due(now_ns):
            self._put(publication)

    def goodbye(self, reason: str, expected: bool) -> Publication:
        """Our departure; with `expected` False the last will, which the broker publishes when we are cut off."""
        farewell = Goodbye(
            source=self._source, t_ns=time.monotonic_ns(), peer=self._source, reason=reason, expected=expected
        )
        return Publication(self._topics.pub(self._source, kind_of(farewell)), encode(farewell), qos=1)

    def _interest_changed(self) -> None:
        self._put(self._keep_interest())
        self._link.refresh_subscriptions()

    def _keep_interest(self) -> Publication:
        kinds = sorted({kind_of(kind) for kinds in tuple(self.subs.values()) for kind in kinds})
        return self.state.keep(self._topics.interest(self._source), msgspec.msgpack.encode(kinds))

    def _clear(self, topic: str) -> None:
        clearing = self.state.forget(topic)
        if clearing is not None:
            self._put(clearing)

    def _put(self, publication: Publication) -> None:
        self._link.outgoing.put(publication)
