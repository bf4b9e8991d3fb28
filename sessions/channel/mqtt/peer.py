"""A peer of an MQTT channel: an Endpoint, and the receiving half that feeds it from the broker."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable

import msgspec

from sessions.channel.endpoint import Endpoint
from sessions.channel.interface import ChannelError
from sessions.channel.mqtt.address import BrokerAddress
from sessions.channel.mqtt.clocks import ClockBook, ClockOffset
from sessions.channel.mqtt.commands import too_old
from sessions.channel.mqtt.link import BrokerLink
from sessions.channel.mqtt.outgoing import Publication
from sessions.channel.mqtt.payload import pack, unpack
from sessions.channel.mqtt.topics import TopicName, Topics
from sessions.channel.mqtt.uplink import MqttUplink
from sessions.codec import MalformedMessage, UnknownKind, decode, schema_refusal
from sessions.messages import (
    FRAMES,
    RETAINED,
    Command,
    Goodbye,
    Hello,
    Marker,
    Message,
    Reply,
    Role,
    SessionHeader,
    kind_of,
)

logger = logging.getLogger(__name__)

PING_NS = 10_000_000_000
SERVERS_KNOWN_NS = 1_000_000_000
MAX_PEERS = 4096
RECENT = 256
"""Publications of each source that are remembered, to tell a repetition by the broker (or a refresh) from news."""
_FRAMES = frozenset(FRAMES)
_RETAINED = frozenset((*RETAINED, Hello))
_times = msgspec.msgpack.Decoder(list[int])
_names = msgspec.msgpack.Decoder(list[str])


def connect_mqtt(address: BrokerAddress, source: str, role: Role, timeout_s: float) -> MqttPeer:
    """Join the session at `address`, waiting up to `timeout_s` for the broker.

    Raise ChannelError when it cannot be reached or refuses. Later losses of the broker are mended by themselves.
    """
    address.tls_context()  # a file that cannot be used is a mistake to name now, not a reason to try again
    peer = MqttPeer(address, source, role)
    if not peer.connected.wait(timeout_s):
        peer.close("the broker did not answer")
        raise ChannelError(f"{address} did not let us in within {timeout_s:g} s: {peer.last_error or 'no answer'}")
    return peer


class MqttPeer(Endpoint):
    """An endpoint over a broker (see connect_mqtt). Times of messages from other hosts are put on our clock.

    `rejected` counts packets that were not accepted, by reason.
    """

    def __init__(self, address: BrokerAddress, source: str, role: Role) -> None:
        super().__init__(source)
        self.connected = threading.Event()
        self.last_error: str | None = None
        self.rejected: Counter[str] = Counter()
        self._address = address
        self._topics = Topics(address.base)
        self._clocks = ClockBook(source)
        self._retained: dict[tuple[str, str], Message] = {}
        self._present: dict[str, int] = {}
        self._recent: dict[str, deque[int]] = {}
        self._interests: dict[str, frozenset[str]] = {}
        self._servers: dict[str, str] = {}
        self._connected_ns = 0
        self._lost_ns = 0
        self._handlers: dict[str, Callable[[TopicName, memoryview], None]] = {
            "pub": self._on_publication,
            "cmd": self._on_command,
            "reply": self._on_reply,
            "serve": self._on_server,
            "interest": self._on_interest,
            "ping": self._on_ping,
            "pong": self._on_pong,
        }
        self._link = BrokerLink(address, source, self)
        self._up = MqttUplink(source, role, self._topics, self._link, self)
        self.attach(self._up)
        self._link.start()

    @property
    def dropped(self) -> int:
        """Frames of ours that were dropped, oldest first, because the broker was away or slow."""
        return self._link.outgoing.dropped

    @property
    def connections(self) -> int:
        """How often the broker has let us in."""
        return self._link.connections

    def clock_offsets(self) -> dict[str, ClockOffset]:
        """How far each other host's clock is from ours, by host."""
        return self._clocks.offsets()

    # --- the link's user ---

    def will(self) -> Publication:
        """What the broker says for us when we are cut off."""
        will = self._up.goodbye("the connection to the broker broke", expected=False)
        return msgspec.structs.replace(will, payload=pack([will.payload]))

    def topics_wanted(self) -> set[str]:
        """All topics to receive now."""
        topics = self._topics
        wanted = {topics.servers(), topics.interests(), topics.pings_to(self.source), topics.pongs_to(self.source)}
        wanted |= {topics.pub_of_kind(kind_of(kind)) for kind in (Hello, Goodbye, SessionHeader)}
        kinds = {kind for kinds in tuple(self._up.subs.values()) for kind in kinds}
        kinds |= {kind for kinds in tuple(self._up.serves.values()) for kind in kinds}
        wanted |= {topics.cmd_of_kind(kind_of(kind)) for kind in kinds if issubclass(kind, Command)}
        wanted |= {topics.pub_of_kind(kind_of(kind)) for kind in kinds if not issubclass(kind, Command | Reply)}
        watches_replies = any(issubclass(kind, Reply) for kind in kinds)
        wanted.add(topics.all_replies() if watches_replies else topics.replies_to(self.source))
        return wanted

    def on_connected(self) -> None:
        """The broker let us in: put our state there, and tell the readers when it had been away."""
        now = time.monotonic_ns()
        self._connected_ns = now
        self._up.introduce(now)
        if self._lost_ns:
            away = (now - self._lost_ns) / 1e9
            self._alert(f"{self._address} is back after {away:.1f} s; {self.dropped} frames of ours dropped in all")
            self._lost_ns = 0
        self.connected.set()

    def on_disconnected(self, reason: str) -> None:
        """The broker is gone, or was not there: told once, tried again until it is back."""
        self.last_error = reason
        if self.connected.is_set() and not self._lost_ns:
            self._lost_ns = time.monotonic_ns()
            self._alert(f"{self._address} is gone ({reason}); trying again")

    def on_message(self, topic: str, payload: bytes) -> None:
        """A packet from the broker, from whoever may publish there: nothing in it is trusted."""
        name = self._topics.parse(topic)
        handler = self._handlers.get(name.line) if name else None
        if name is None or handler is None:
            self.rejected["unknown topic"] += 1
            return
        if not payload:
            self._on_cleared(name)
            return
        try:
            for item in unpack(payload):
                handler(name, item)
        except (MalformedMessage, msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.rejected["malformed"] += 1
            logger.info("rejected a packet on %s: %s", topic, error)

    def on_refused(self, publication: Publication, reason: str) -> None:
        """The broker does not let us publish there; for a command that is its answer."""
        name = self._topics.parse(publication.topic)
        if name is None or name.line != "cmd":
            self.rejected[f"the broker refused our {name.line if name else 'packet'}"] += 1
            return
        command = decode(publication.payload)
        if isinstance(command, Command) and self._up.asked.answered(command.id):
            self._answer_here(command, f"the broker does not let this user turn knobs ({reason})")

    def on_tick(self) -> None:
        """Twice a second: refresh our state, ask again what has no answer, compare clocks."""
        now = time.monotonic_ns()
        self._up.refresh(now)
        for command in self._up.asked.due(now, set(self._pending)):
            if kind_of(command) in self._servers or now - self._connected_ns < SERVERS_KNOWN_NS:
                self._up.send_command(command)
            elif self._up.asked.answered(command.id):
                self._answer_here(command, f"nobody here serves {kind_of(command)}")
        for peer, pinged_ns in list(self._present.items()):
            if now - pinged_ns >= PING_NS and not self._clocks.is_ours(peer):
                self._present[peer] = now
                self._up.send_probe(self._topics.ping(peer, self.source), msgspec.msgpack.encode([now]))

    def subscribed(self, sub: int, kinds: frozenset[type[Message]], sources: frozenset[str]) -> None:
        """A subscription was added: give it the retained messages seen before it."""
        for (_, source), message in list(self._retained.items()):
            if type(message) in kinds and (not sources or source in sources):
                self.receive_for(sub, message)
        self.receive_confirmation(sub)

    # --- what arrives, by topic ---

    def _on_publication(self, name: TopicName, item: memoryview) -> None:
        message = self._message(item, name.first, name.second)
        if message is None or (type(message) not in _FRAMES and self._is_repeated(message.source, item)):
            return
        if isinstance(message, Hello | SessionHeader):
            self._clocks.learn_anchor(message, time.monotonic_ns(), time.time_ns())
        message = self._clocks.to_ours(message)
        if isinstance(message, Hello):
            self._on_hello(message)
        elif isinstance(message, Goodbye):
            self._on_goodbye(message)
        if type(message) in _RETAINED and len(self._retained) < MAX_PEERS:
            self._retained[name.second, message.source] = message
        self.receive_message(message)

    def _on_hello(self, greeting: Hello) -> None:
        refusal = schema_refusal(greeting.schema, greeting.source)
        if refusal is not None:
            self.rejected[refusal] += 1
        elif greeting.source not in self._present and len(self._present) < MAX_PEERS:
            self._present[greeting.source] = 0

    def _on_goodbye(self, farewell: Goodbye) -> None:
        gone = farewell.peer
        if gone == self.source or gone != farewell.source:
            return
        self._present.pop(gone, None)
        self._recent.pop(gone, None)
        self._servers = {kind: server for kind, server in self._servers.items() if server != gone}
        for key in [key for key in self._retained if key[1] == gone]:
            del self._retained[key]
        self._set_interest(gone, frozenset())

    def _on_command(self, name: TopicName, item: memoryview) -> None:
        command = self._message(item, name.second, name.first)
        if not isinstance(command, Command):
            return
        command = self._clocks.to_ours(command)
        assert isinstance(command, Command)
        if not self._up.received.is_new(command):
            reply = self._up.received.reply_to(command)
            if reply is not None:
                self._up.send_reply(reply)
            return
        self.receive_message(command)
        for sub, kinds in list(self._up.serves.items()):
            if type(command) in kinds:
                self._serve(sub, command)

    def _serve(self, sub: int, command: Command) -> None:
        if not (self._address.loopback or self._address.authenticated or self._address.allow_open_commands):
            reason = f"{self._address} asks nobody for a password: commands are refused until it does"
        elif command.source not in self._present:
            reason = "commands are taken only from peers that have said hello"
        elif too_old(command, time.monotonic_ns()):
            reason = "this command is older than a minute"
        else:
            self.receive_for(sub, command)
            return
        self._up.reply(self._refusal(command, reason))

    def _on_reply(self, name: TopicName, item: memoryview) -> None:
        reply = self._message(item, name.second, None)
        if not isinstance(reply, Reply) or reply.to != name.first:
            return
        if reply.to == self.source:
            if self._up.asked.answered(reply.id) is None:
                return
            self.receive_reply(reply)
        self.receive_message(self._clocks.to_ours(reply))

    def _on_server(self, name: TopicName, item: memoryview) -> None:
        self._servers[name.first] = name.second

    def _on_interest(self, name: TopicName, item: memoryview) -> None:
        self._set_interest(name.first, frozenset(_names.decode(item)))

    def _on_ping(self, name: TopicName, item: memoryview) -> None:
        (sent_ns,) = _exactly(_times.decode(item), 1)
        answer = msgspec.msgpack.encode([sent_ns, time.monotonic_ns()])
        self._up.send_probe(self._topics.pong(name.second, self.source), answer)

    def _on_pong(self, name: TopicName, item: memoryview) -> None:
        sent_ns, remote_ns = _exactly(_times.decode(item), 2)
        self._clocks.learn_ping(name.second, sent_ns, remote_ns, time.monotonic_ns())

    def _on_cleared(self, name: TopicName) -> None:
        """A retained publication was taken back."""
        if name.line == "interest":
            self._set_interest(name.first, frozenset())
        elif name.line == "serve" and self._servers.get(name.first) == name.second:
            del self._servers[name.first]
        elif name.line == "pub":
            self._retained.pop((name.second, name.first), None)

    # --- helpers ---

    def _message(self, item: memoryview, source: str, kind: str | None) -> Message | None:
        """Decode a message and hold it against its topic, which is what the broker's access list rules over."""
        message = decode(item)
        if isinstance(message, UnknownKind):
            self.unknown_kinds[message.kind] += 1
            return None
        if message.source != source or (kind is not None and kind_of(message) != kind):
            self.rejected["source or kind is not the topic's"] += 1
            return None
        return message

    def _is_repeated(self, source: str, item: memoryview) -> bool:
        """At least once, which is what the broker promises for anything but frames, can be twice."""
        if source not in self._recent and len(self._recent) >= MAX_PEERS:
            return False
        recent = self._recent.setdefault(source, deque(maxlen=RECENT))
        mark = hash(item.tobytes())
        if mark in recent:
            return True
        recent.append(mark)
        return False

    def _set_interest(self, source: str, kinds: frozenset[str]) -> None:
        if source == self.source:
            return
        if kinds and len(self._interests) < MAX_PEERS:
            self._interests[source] = kinds
        else:
            self._interests.pop(source, None)
        self.receive_wanted(frozenset().union(*self._interests.values()))

    def _answer_here(self, command: Command, reason: str) -> None:
        self.receive_reply(self._refusal(command, reason))

    def _refusal(self, command: Command, reason: str) -> Reply:
        now = time.monotonic_ns()
        return Reply(source=self.source, t_ns=now, id=command.id, to=command.source, ok=False, reason=reason)

    def _alert(self, text: str) -> None:
        self.receive_message(Marker(source=self.source, t_ns=time.monotonic_ns(), category="alert", text=text))


def _exactly(values: list[int], count: int) -> list[int]:
    if len(values) != count:
        raise MalformedMessage(f"{len(values)} times instead of {count}")
    return values
