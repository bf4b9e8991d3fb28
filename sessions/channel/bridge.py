"""Joins an engine's Unix-socket channel to another carrier, so that consoles elsewhere watch and operate it.

Messages go out as they are. Each remote asker gets a connection of its own to the engine, under its own source id: so
the engine sees who turned a knob, and ends the requests of an asker that goes away.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from sessions.channel.interface import Channel, ChannelError, Subscription
from sessions.channel.peer import UnixPeer, connect_unix
from sessions.messages import AnyMessage, Command, Goodbye, Hello, Message, Reply, TokenFrame

CONNECT_TIMEOUT_S = 5.0
COMMAND_TIMEOUT_S = 120.0
MAX_ASKERS = 64
MAX_WAITING = 1000
_POLL_S = 0.25

_KINDS: tuple[type[Message], ...] = get_args(AnyMessage)
COMMANDS: tuple[type[Command], ...] = tuple(kind for kind in _KINDS if issubclass(kind, Command))
OUTWARD: tuple[type[Message], ...] = tuple(
    kind for kind in _KINDS if not issubclass(kind, Command | Reply | Hello | Goodbye | TokenFrame)
)
"""Kinds that always go out; token frames only while somebody there reads them."""


class Bridge:
    """Runs in a thread until the engine is gone (then `ended` is set and the outer side is told) or `close`."""

    def __init__(self, socket: Path, source: str, connect_outer: Callable[[str], Channel]) -> None:
        """`connect_outer` is given the engine's source id, under which the engine is known on the other side.

        Raise ChannelError when either side cannot be reached.
        """
        self.ended = threading.Event()
        self._socket = socket
        self._inner = connect_unix(socket, source, "cli", CONNECT_TIMEOUT_S)
        self._engine = self._inner.welcomed.result(CONNECT_TIMEOUT_S).source
        try:
            self._outer = connect_outer(self._engine)
        except ChannelError:
            self._inner.close()
            raise
        self._wake = threading.Event()
        self._closing = False
        self._askers: dict[str, _Asker] = {}
        self._tokens: Subscription | None = None
        self._thread = threading.Thread(target=self._run, name="bridge", daemon=True)
        self._thread.start()

    def close(self, reason: str = "the bridge was closed") -> None:
        """End both sides; the other side is told the reason."""
        self._closing = True
        self._wake.set()
        self._thread.join(5.0)
        self._outer.close(reason)
        self._inner.close(reason)

    def _run(self) -> None:
        outward = self._listen(self._inner.subscribe(OUTWARD))
        commands = self._listen(self._outer.serve(COMMANDS))
        farewells = self._listen(self._outer.subscribe([Goodbye]))
        end = self._listen(self._inner.subscribe([Goodbye]))
        while not self._closing and not self._engine_gone(end):
            self._wake.wait(_POLL_S)
            self._wake.clear()
            self._follow_token_readers()
            for message in [*outward.drain(), *(self._tokens.drain() if self._tokens else ())]:
                self._outer.publish(message)
            for command in commands.drain():
                if isinstance(command, Command):
                    self._forward(command)
            for farewell in farewells.drain():
                if isinstance(farewell, Goodbye):
                    self._dismiss(farewell.peer)
        for asker in list(self._askers):
            self._dismiss(asker)
        self.ended.set()

    def _listen(self, subscription: Subscription) -> Subscription:
        subscription.on_arrival(self._wake.set)
        return subscription

    def _engine_gone(self, farewells: Subscription) -> bool:
        for farewell in farewells.drain():
            if isinstance(farewell, Goodbye) and farewell.peer == self._engine:
                now = time.monotonic_ns()
                told = Goodbye(
                    source=self._engine,
                    t_ns=now,
                    peer=self._engine,
                    reason=farewell.reason,
                    expected=farewell.expected,
                )
                self._outer.publish(told)
                return True
        return False

    def _follow_token_readers(self) -> None:
        wanted = self._outer.wanted(TokenFrame)
        if wanted and self._tokens is None:
            self._tokens = self._listen(self._inner.subscribe([TokenFrame]))
        elif not wanted and self._tokens is not None:
            self._tokens.close()
            self._tokens = None

    def _forward(self, command: Command) -> None:
        asker = self._askers.get(command.source)
        if asker is None:
            if len(self._askers) >= MAX_ASKERS:
                self._outer.answer(command, self._refusal(command, f"more than {MAX_ASKERS} askers at once"))
                return
            asker = self._askers[command.source] = _Asker(self._socket, command.source, self._answer, self._refusal)
        if not asker.ask(command):
            self._outer.answer(command, self._refusal(command, f"{MAX_WAITING} commands of yours wait already"))

    def _dismiss(self, source: str) -> None:
        asker = self._askers.pop(source, None)
        if asker is not None:
            asker.close()

    def _answer(self, command: Command, reply: Reply) -> None:
        self._outer.answer(command, reply)

    def _refusal(self, command: Command, reason: str) -> Reply:
        return Reply(
            source=self._engine, t_ns=time.monotonic_ns(), id=command.id, to=command.source, ok=False, reason=reason
        )


class _Asker:
    """A remote asker's connection to the engine: its commands, one after the other, in a thread."""

    def __init__(
        self,
        socket: Path,
        source: str,
        answer: Callable[[Command, Reply], None],
        refusal: Callable[[Command, str], Reply],
    ) -> None:
        self._socket = socket
        self._source = source
        self._answer = answer
        self._refusal = refusal
        self._waiting: queue.Queue[Command] = queue.Queue(MAX_WAITING)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"bridge {source}", daemon=True)
        self._thread.start()

    def ask(self, command: Command) -> bool:
        """Queue a command; False when too many wait."""
        try:
            self._waiting.put_nowait(command)
        except queue.Full:
            return False
        return True

    def close(self) -> None:
        """Leave the engine once the commands under way are answered."""
        self._closing.set()

    def _run(self) -> None:
        peer: UnixPeer | None = None
        while command := self._next():
            try:
                peer = peer or connect_unix(self._socket, self._source, "console", CONNECT_TIMEOUT_S)
                reply = peer.request(command, COMMAND_TIMEOUT_S)
            except ChannelError as error:
                reply = self._refusal(command, str(error))
            self._answer(command, reply)
        if peer is not None:
            peer.close("the remote peer left")

    def _next(self) -> Command | None:
        while True:
            try:
                return self._waiting.get(timeout=_POLL_S)
            except queue.Empty:
                if self._closing.is_set():
                    return None
