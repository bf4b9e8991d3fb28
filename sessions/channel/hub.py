"""The hub of a Unix-socket channel: hosted by the engine's driver, and itself a Channel."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from sessions.channel.connection import Connection
from sessions.channel.endpoint import Endpoint
from sessions.channel.framing import Frame, FrameType, Interest, interest_in, pack, pack_control, text_in
from sessions.channel.greeting import hello
from sessions.channel.interface import ChannelError
from sessions.channel.loop import IoLoop
from sessions.channel.paths import check_socket_path
from sessions.channel.router import Parcel, Router
from sessions.clock import MonotonicClock
from sessions.codec import MalformedMessage, UnknownKind, decode, schema_refusal
from sessions.messages import FRAMES, Command, Hello, Message, Reply, Role, kind_of

MAX_PEERS = 128
HANDSHAKE_S = 5.0
_CLOSE_S = 0.9
_DYING_S = 0.5
"""A killed engine's socket still accepts for a moment after its peers have seen it go."""
_FRAME_TYPES = frozenset(FRAMES)


class UnixHub(Endpoint):
    """Listens on the socket `path` and routes between all peers. Raise ChannelError when it cannot listen."""

    def __init__(self, path: str | Path, source: str, role: Role) -> None:
        super().__init__(source)
        self.path = Path(path)
        self._listener, self._inode = _listen(self.path)
        self._loop = IoLoop("channel-hub", self._drop_silent_peers)
        self._hello = hello(source, role)
        self._router = Router(source, MonotonicClock())
        self._peers: set[_PeerPort] = set()
        self._local = _LocalPort(self)
        self.attach(_LocalUplink(self._loop, self._router, self._local, self._shut_down))
        self._loop.post(self._router.attach, self._local)
        self._loop.post(self._loop.watch, self._listener, self._accept)
        self._loop.start()

    def _accept(self, _mask: int) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            sock, _ = self._listener.accept()
            port = _PeerPort(sock, self)
            if len(self._peers) >= MAX_PEERS:
                port.connection.close(f"{MAX_PEERS} peers are connected already")
                return
            self._peers.add(port)
            port.connection.start()

    def _drop_silent_peers(self) -> None:
        now = time.monotonic()
        for port in tuple(self._peers):
            if not port.name and now - port.since > HANDSHAKE_S:
                port.connection.lose(f"no hello within {HANDSHAKE_S:g} s")

    def _shut_down(self, reason: str) -> None:
        for port in tuple(self._peers):
            port.connection.close(reason)
        self._peers.clear()
        self._loop.unwatch(self._listener)
        self._listener.close()
        with contextlib.suppress(OSError):
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()

    def close(self, reason: str = "") -> None:
        """Say goodbye to every peer, remove the socket and end the thread."""
        if self._closed is None:
            super().close(reason or "the engine's channel is closed")
            self._loop.stop(_CLOSE_S)

    # --- used by the ports, in the loop's thread ---

    def welcome(self, port: _PeerPort, message: Message | UnknownKind) -> None:
        """The first frame of a peer: attach it, or end the connection with the reason."""
        if not isinstance(message, Hello) or not message.source:
            raise MalformedMessage("a peer's first message must be its hello")
        refusal = schema_refusal(message.schema, message.source)
        if refusal is not None:
            raise ChannelError(refusal)
        port.name = message.source
        self._router.attach(port)
        port.connection.send(pack(FrameType.MESSAGE, Parcel(self._hello).payload))
        self._router.publish(Parcel(message))

    def route(self, port: _PeerPort, frame: Frame) -> None:
        """One frame of an attached peer."""
        match frame.type:
            case FrameType.SUBSCRIBE:
                interest = interest_in(frame.payload)
                self._router.subscribe(port, frame.sub, interest.kinds, interest.sources)
            case FrameType.SERVE:
                self._router.serve(port, frame.sub, interest_in(frame.payload).kinds)
            case FrameType.UNSUBSCRIBE:
                self._router.unsubscribe(port, frame.sub)
            case FrameType.BYE:
                reason = text_in(frame.payload)
                port.connection.close("goodbye")
                self.gone(port, reason, expected=True)
            case FrameType.MESSAGE | FrameType.COMMAND | FrameType.REPLY:
                self._route_message(port, frame)
            case FrameType.DROPPED:
                pass
            case _:
                raise MalformedMessage(f"a peer may not send {frame.type.name.lower()} frames")

    def _route_message(self, port: _PeerPort, frame: Frame) -> None:
        message = decode(frame.payload)
        if isinstance(message, UnknownKind):
            if len(self.unknown_kinds) < MAX_PEERS or message.kind in self.unknown_kinds:
                self.unknown_kinds[message.kind] += 1
            return
        parcel = Parcel(message, frame.payload)
        if frame.type is FrameType.MESSAGE:
            self._router.publish(parcel)
        elif frame.type is FrameType.COMMAND and isinstance(message, Command):
            self._router.command(port, parcel)
        elif frame.type is FrameType.REPLY and isinstance(message, Reply):
            self._router.reply(parcel)
        else:
            raise MalformedMessage(f"a {frame.type.name.lower()} frame cannot hold a {kind_of(message)}")

    def gone(self, port: _PeerPort, reason: str, expected: bool) -> None:
        """A peer left or was lost."""
        self._peers.discard(port)
        self._router.detach(port, reason, expected)


class _PeerPort:
    """A connected peer as the router sees it. `name` is empty until its hello."""

    def __init__(self, sock: socket.socket, hub: UnixHub) -> None:
        self.name = ""
        self.since = time.monotonic()
        self._hub = hub
        self.connection = Connection(hub._loop, sock, self._on_frame, self._on_lost)

    def deliver(self, parcel: Parcel) -> None:
        self.connection.send(pack(FrameType.MESSAGE, parcel.payload), type(parcel.message) in _FRAME_TYPES)

    def deliver_for(self, sub: int, parcel: Parcel, command: bool) -> None:
        self.connection.send(pack(FrameType.COMMAND if command else FrameType.RETAINED, parcel.payload, sub))

    def deliver_reply(self, parcel: Parcel) -> None:
        self.connection.send(pack(FrameType.REPLY, parcel.payload))

    def tell_wanted(self, kinds: frozenset[str]) -> None:
        self.connection.send(pack_control(FrameType.WANTED, Interest(sorted(kinds))))

    def confirm(self, sub: int) -> None:
        self.connection.send(pack(FrameType.CONFIRMED, b"", sub))

    def refuse(self, sub: int, reason: str) -> None:
        self.connection.send(pack_control(FrameType.REFUSED, reason, sub))

    def _on_frame(self, frame: Frame) -> None:
        if self.name:
            self._hub.route(self, frame)
        elif frame.type is FrameType.MESSAGE:
            self._hub.welcome(self, decode(frame.payload))
        else:
            raise MalformedMessage("a peer's first message must be its hello")

    def _on_lost(self, reason: str) -> None:
        self._hub.gone(self, reason, expected=False)


class _LocalPort:
    """The hub's own endpoint as the router sees it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.name = endpoint.source
        self._endpoint = endpoint

    def deliver(self, parcel: Parcel) -> None:
        self._endpoint.receive_message(parcel.message)

    def deliver_for(self, sub: int, parcel: Parcel, command: bool) -> None:
        self._endpoint.receive_for(sub, parcel.message)

    def deliver_reply(self, parcel: Parcel) -> None:
        assert isinstance(parcel.message, Reply)
        self._endpoint.receive_reply(parcel.message)

    def tell_wanted(self, kinds: frozenset[str]) -> None:
        self._endpoint.receive_wanted(kinds)

    def confirm(self, sub: int) -> None:
        self._endpoint.receive_confirmation(sub)

    def refuse(self, sub: int, reason: str) -> None:
        self._endpoint.receive_refusal(sub, reason)


class _LocalUplink:
    """Posts the hub's own calls to the router's thread."""

    def __init__(self, loop: IoLoop, router: Router, port: _LocalPort, shut_down: Callable[[str], None]) -> None:
        self._loop = loop
        self._router = router
        self._port = port
        self._shut_down = shut_down

    def publish(self, message: Message) -> None:
        self._loop.post(self._router.publish, Parcel(message))

    def subscribe(self, sub: int, kinds: Iterable[type[Message]], sources: Iterable[str]) -> None:
        names = [kind_of(kind) for kind in kinds]
        self._loop.post(self._router.subscribe, self._port, sub, names, tuple(sources))

    def unsubscribe(self, sub: int) -> None:
        self._loop.post(self._router.unsubscribe, self._port, sub)

    def serve(self, sub: int, kinds: Iterable[type[Message]]) -> None:
        self._loop.post(self._router.serve, self._port, sub, [kind_of(kind) for kind in kinds])

    def command(self, command: Command) -> None:
        self._loop.post(self._router.command, self._port, Parcel(command))

    def reply(self, reply: Reply) -> None:
        self._loop.post(self._router.reply, Parcel(reply))

    def close(self, reason: str) -> None:
        self._loop.post(self._shut_down, reason)


def _listen(path: Path) -> tuple[socket.socket, int]:
    """Bind beside `path`, make it private, then move it into place: a stale socket is replaced, a live one refused."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    check_socket_path(fresh)
    deadline = time.monotonic() + _DYING_S
    while path.exists() and _answers(path):
        if time.monotonic() >= deadline:
            raise ChannelError(f"another engine listens on {path}: stop it, or choose another path")
        time.sleep(0.02)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.unlink(missing_ok=True)
        listener.bind(os.fspath(fresh))
        fresh.chmod(0o600)
        listener.listen(MAX_PEERS)
        listener.setblocking(False)
        fresh.rename(path)
        return listener, path.stat().st_ino
    except OSError as error:
        listener.close()
        raise ChannelError(f"cannot listen on {path}: {error.strerror}") from None


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True
