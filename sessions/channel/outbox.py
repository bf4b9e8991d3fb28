"""What waits to be sent to one peer: droppable frames in a small ring, everything else kept in order."""

from __future__ import annotations

import socket
from collections import deque

from sessions.channel.framing import FrameType, pack_control

MAX_FRAME_BACKLOG = 4 * 1024 * 1024
MAX_BACKLOG = 64 * 1024 * 1024
_SEND_BYTES = 256 * 1024


class BacklogExceeded(Exception):
    """The peer reads too slowly even for what must not be dropped; the text is one line."""


class _Entry:
    __slots__ = ("data", "droppable")

    def __init__(self, data: bytes, droppable: bool) -> None:
        self.data = data
        self.droppable = droppable


class Outbox:
    """Ordered backlog of one non-blocking socket.

    Over `frame_limit` bytes of droppable entries the oldest of them are dropped and counted; the count travels to the
    peer before what follows. Over `limit` bytes of other entries `put` raises BacklogExceeded.
    """

    def __init__(self, frame_limit: int = MAX_FRAME_BACKLOG, limit: int = MAX_BACKLOG) -> None:
        self._frame_limit = frame_limit
        self._limit = limit
        self._entries: deque[_Entry] = deque()
        self._droppable: deque[_Entry] = deque()
        self._frame_bytes = 0
        self._kept_bytes = 0
        self._sending = memoryview(b"")
        self._dropped = 0
        self.dropped_total = 0

    def __bool__(self) -> bool:
        return bool(self._entries) or len(self._sending) > 0

    def put(self, data: bytes, droppable: bool) -> None:
        """Queue one packed frame; raise BacklogExceeded."""
        entry = _Entry(data, droppable)
        self._entries.append(entry)
        if not droppable:
            self._kept_bytes += len(data)
            if self._kept_bytes > self._limit:
                raise BacklogExceeded(f"{self._kept_bytes >> 20} MiB unread: the reader is stuck or too slow")
            return
        self._droppable.append(entry)
        self._frame_bytes += len(data)
        while self._frame_bytes > self._frame_limit:
            oldest = self._droppable.popleft()
            self._frame_bytes -= len(oldest.data)
            oldest.data = b""
            self._dropped += 1
            self.dropped_total += 1

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
        while self._entries and size < _SEND_BYTES:
            entry = self._entries.popleft()
            if not entry.data:
                continue
            size += len(entry.data)
            parts.append(entry.data)
            if entry.droppable:
                self._droppable.popleft()
                self._frame_bytes -= len(entry.data)
            else:
                self._kept_bytes -= len(entry.data)
        return memoryview(b"".join(parts))
