"""One stream socket between two peers: frames in, frames out, never waiting."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Callable

from sessions.channel.framing import Frame, FrameSplitter, FrameType, pack_control
from sessions.channel.interface import ChannelError
from sessions.channel.loop import IoLoop
from sessions.channel.outbox import BacklogExceeded, Outbox
from sessions.codec import MalformedMessage

_READ_BYTES = 256 * 1024


class Connection:
    """Reads frames into `on_frame` and sends what is queued. All methods belong to the loop's thread.

    `on_lost(reason)` is called once, when the peer is gone, says something malformed or reads too slowly; the reason
    is told to the peer as far as it still listens.
    """

    def __init__(
        self,
        loop: IoLoop,
        sock: socket.socket,
        on_frame: Callable[[Frame], None],
        on_lost: Callable[[str], None],
    ) -> None:
        sock.setblocking(False)
        self._loop = loop
        self._sock = sock
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._splitter = FrameSplitter()
        self._outbox = Outbox()
        self._writing = False
        self._flush_posted = False
        self.open = True

    def start(self) -> None:
        """Begin to read."""
        self._loop.watch(self._sock, self._on_ready)

    def send(self, data: bytes, droppable: bool = False) -> None:
        """Queue one packed frame; it leaves when the loop has run what is posted, together with its neighbours."""
        if not self.open:
            return
        try:
            self._outbox.put(data, droppable)
        except BacklogExceeded as error:
            self.lose(str(error))
            return
        if not self._writing and not self._flush_posted:
            self._flush_posted = True
            self._loop.post(self._flush_soon)

    def lose(self, reason: str) -> None:
        """End the connection because of the peer: say why, close, tell the owner."""
        if self.open:
            self.close(reason)
            self._on_lost(reason)

    def close(self, reason: str) -> None:
        """Send what the socket still takes and a goodbye, then close."""
        if not self.open:
            return
        self.open = False
        self._loop.unwatch(self._sock)
        with contextlib.suppress(OSError, BacklogExceeded):
            self._outbox.put(pack_control(FrameType.BYE, reason), droppable=False)
            self._outbox.send(self._sock)
        self._sock.close()

    def _flush_soon(self) -> None:
        self._flush_posted = False
        self._flush()

    def _flush(self) -> None:
        if not self.open:
            return
        try:
            self._outbox.send(self._sock)
        except OSError as error:
            # The peer has closed its end: what it sent before, its goodbye perhaps, is still there to be read.
            while self.open and self._read():
                pass
            self.lose(f"connection lost: {error.strerror or error}")
            return
        if bool(self._outbox) != self._writing:
            self._writing = bool(self._outbox)
            self._loop.watch(self._sock, self._on_ready, write=self._writing)

    def _on_ready(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if mask & selectors.EVENT_READ and self.open:
            self._read()

    def _read(self) -> bool:
        """Take in what has arrived; whether there may be more."""
        try:
            data = self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            self.lose(f"connection lost: {error.strerror or error}")
            return False
        if not data:
            self.lose("connection lost: the peer's process ended or closed it")
            return False
        try:
            for frame in self._splitter.feed(data):
                self._on_frame(frame)
                if not self.open:
                    return False
        except (MalformedMessage, ChannelError) as error:
            self.lose(str(error))
        return self.open
