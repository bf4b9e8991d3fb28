"""What waits to be sent to one peer: droppable frames in a small ring, everything else kept in order."""

from __future__ import annotations

import socket

from sessions.channel.backlog import Backlog
from sessions.channel.framing import FrameType, pack_control

MAX_FRAME_BACKLOG = 4 * 1024 * 1024
MAX_BACKLOG = 64 * 1024 * 1024
_SEND_BYTES = 256 * 1024


class BacklogExceeded(Exception):
    """The peer reads too slowly even for what must not be dropped; the text is one line."""


class Outbox:
    """Ordered backlog of one non-blocking socket.

    Over `frame_limit` bytes of droppable entries the oldest of them are dropped and counted; the count travels to the
    peer before what follows. Over `limit` bytes of other entries `put` raises BacklogExceeded.
    """

    def __init__(self, frame_limit: int = MAX_FRAME_BACKLOG, limit: int = MAX_BACKLOG) -> None:
        self._frame_limit = frame_limit
        self._limit = limit
        self._backlog: Backlog[bytes] = Backlog()
        self._frame_bytes = 0
        self._bytes = 0
        self._sending = memoryview(b"")
        self._dropped = 0

    def __bool__(self) -> bool:
        return len(self._backlog) > 0 or len(self._sending) > 0

    def put(self, data: bytes, droppable: bool) -> None:
        """Queue one packed frame; raise BacklogExceeded."""
        self._backlog.append(data, droppable)
        self._bytes += len(data)
        if not droppable:
            kept = self._bytes - self._frame_bytes
            if kept > self._limit:
                raise BacklogExceeded(f"{kept >> 20} MiB unread: the reader is stuck or too slow")
            return
        self._frame_bytes += len(data)
        while self._frame_bytes > self._frame_limit:
            size = len(self._backlog.drop_oldest())
            self._frame_bytes -= size
            self._bytes -= size
            self._dropped += 1

    def send(self, sock: socket.socket) -> None:
        """Send as much as the socket takes without waiting; raise OSError when the peer is gone."""
        while self:
            if not self._sending:
                self._sending = self._next_chunk()
            try:
                sent = sock.send(self._sending)
            except BlockingIOError:
                return
            self._sending = self._sending[sent:]

    def _next_chunk(self) -> memoryview:
        parts: list[bytes] = []
        size = 0
        if self._dropped:
            parts.append(pack_control(FrameType.DROPPED, self._dropped))
            self._dropped = 0
        while len(self._backlog) and size < _SEND_BYTES:
            frames = self._backlog.droppable
            data = self._backlog.pop()
            parts.append(data)
            size += len(data)
            if self._backlog.droppable < frames:
                self._frame_bytes -= len(data)
        self._bytes -= size
        return memoryview(b"".join(parts))
