"""A peer of a Unix-socket channel: the console, a load generator, a benchmark, a probe."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path

from sessions.channel.connection import Connection
from sessions.channel.endpoint import Endpoint
from sessions.channel.framing import (
    Frame,
    FrameType,
    Interest,
    count_in,
    interest_in,
    pack,
    pack_control,
    text_in,
)
from sessions.channel.greeting import hello
from sessions.channel.interface import ChannelClosed, ChannelError
from sessions.channel.loop import IoLoop
from sessions.channel.paths import check_socket_path
from sessions.codec import UnknownKind, decode, encode, schema_refusal
from sessions.messages import FRAMES, Command, Hello, Message, Reply, Role, kind_of

_CLOSE_S = 0.9
_RETRY_S = 0.05
_FRAME_TYPES = frozenset(FRAMES)


def connect_unix(path: str | Path, source: str, role: Role, timeout_s: float) -> UnixPeer:
    """Join the channel whose hub listens on `path`, waiting up to `timeout_s` for it to appear and to answer.

    Raise ChannelError when nothing answers there in time, or when the hub refuses.
    """
    path = Path(path)
    check_socket_path(path)
    deadline = time.monotonic() + timeout_s
    sock = _connect(path, deadline)
    peer = UnixPeer(sock, source, role)
    try:
        peer.welcomed.result(max(0.0, deadline - time.monotonic()))
    except TimeoutError:
        peer.close("the hub did not answer")
        raise ChannelError(f"{path} accepts connections but did not answer within {timeout_s:g} s") from None
    except ChannelClosed as error:
        peer.close()
        raise ChannelError(f"{path} refused: {error}") from None
    return peer


class UnixPeer(Endpoint):
    """An endpoint over a connected socket (see connect_unix)."""

    def __init__(self, sock: socket.socket, source: str, role: Role) -> None:
        super().__init__(source)
        self.welcomed: Future[Hello] = Future()
        self._hub_name = "hub"
        self._loop = IoLoop("channel-peer", lambda: None)
        self._connection = Connection(self._loop, sock, self._on_frame, self._on_lost)
        self.attach(_SocketUplink(self._loop, self._connection))
        self._loop.post(self._connection.start)
        self._loop.post(self._connection.send, pack(FrameType.MESSAGE, encode(hello(source, role))))
        self._loop.start()

    def close(self, reason: str = "") -> None:
        """Say goodbye to the hub and end the thread."""
        if self._closed is None:
            super().close(reason or "the peer left")
        self._loop.stop(_CLOSE_S)

    def shut(self, reason: str) -> None:
        """Nothing more will come."""
        super().shut(reason)
        if not self.welcomed.done():
            self.welcomed.set_exception(ChannelClosed(reason))

    def _on_frame(self, frame: Frame) -> None:
        match frame.type:
            case FrameType.WANTED:
                self.receive_wanted(interest_in(frame.payload).kinds)
            case FrameType.DROPPED:
                self.receive_dropped(count_in(frame.payload))
            case FrameType.REFUSED:
                self.receive_refusal(frame.sub, text_in(frame.payload))
            case FrameType.CONFIRMED:
                self.receive_confirmation(frame.sub)
            case FrameType.BYE:
                reason = text_in(frame.payload)
                self._connection.close("goodbye")
                self.lost(self._hub_name, reason, expected=True)
            case _:
                self._on_message(frame)

    def _on_message(self, frame: Frame) -> None:
        message = decode(frame.payload)
        if isinstance(message, UnknownKind):
            self.unknown_kinds[message.kind] += 1
        elif not self.welcomed.done():
            self._on_welcome(message)
        elif frame.type is FrameType.MESSAGE:
            self.receive_message(message)
        elif frame.type is FrameType.REPLY and isinstance(message, Reply):
            self.receive_reply(message)
        else:
            self.receive_for(frame.sub, message)

    def _on_welcome(self, message: Message) -> None:
        if not isinstance(message, Hello):
            raise ChannelError("the hub's first message must be its hello")
        refusal = schema_refusal(message.schema, message.source)
        if refusal is not None:
            raise ChannelError(refusal)
        self._hub_name = message.source
        self.welcomed.set_result(message)

    def _on_lost(self, reason: str) -> None:
        self.lost(self._hub_name, reason, expected=False)


class _SocketUplink:
    """Encodes in the caller's thread, so that a bad message fails where it was made, and sends in the loop's."""

    def __init__(self, loop: IoLoop, connection: Connection) -> None:
        self._loop = loop
        self._connection = connection

    def publish(self, message: Message) -> None:
        packed = pack(FrameType.MESSAGE, encode(message))
        self._loop.post(self._connection.send, packed, type(message) in _FRAME_TYPES)

    def subscribe(self, sub: int, kinds: Iterable[type[Message]], sources: Iterable[str]) -> None:
        interest = Interest([kind_of(kind) for kind in kinds], list(sources))
        self._loop.post(self._connection.send, pack_control(FrameType.SUBSCRIBE, interest, sub))

    def unsubscribe(self, sub: int) -> None:
        self._loop.post(self._connection.send, pack(FrameType.UNSUBSCRIBE, b"", sub))

    def serve(self, sub: int, kinds: Iterable[type[Message]]) -> None:
        interest = Interest([kind_of(kind) for kind in kinds])
        self._loop.post(self._connection.send, pack_control(FrameType.SERVE, interest, sub))

    def command(self, command: Command) -> None:
        self._loop.post(self._connection.send, pack(FrameType.COMMAND, encode(command)))

    def reply(self, reply: Reply) -> None:
        self._loop.post(self._connection.send, pack(FrameType.REPLY, encode(reply)))

    def close(self, reason: str) -> None:
        self._loop.post(self._connection.close, reason)


def _connect(path: Path, deadline: float) -> socket.socket:
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            sock.connect(os.fspath(path))
            return sock
        except OSError as error:
            sock.close()
            if time.monotonic() + _RETRY_S >= deadline:
                what = error.strerror or "no answer"
                raise ChannelError(f"no engine listens on {path} ({what}): start one first") from None
            time.sleep(_RETRY_S)
