"""The control link between the driver and one worker: length-prefixed MessagePack frames over a stream socket."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections import deque
from typing import Generic, TypeVar

import msgspec

LENGTH = struct.Struct("<I")
MAX_FRAME = 1 << 28
READ_BYTES = 1 << 20

Received = TypeVar("Received")


class LinkClosed(ConnectionError):
    """The other side closed the link or died."""


class Link(Generic[Received]):
    """Sends any struct, from any thread; receives those of one tagged union, in one thread.

    Sends never block: what the socket does not take is kept and goes out with `flush`, so that two sides that both
    send do not wait for each other.
    """

    def __init__(self, sock: socket.socket, receives: object) -> None:
        """`receives` is the union type of the frames that come in."""
        sock.setblocking(False)
        self._sock = sock
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Received] = msgspec.msgpack.Decoder(receives)
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._sending = threading.Lock()
        self._frames: deque[Received] = deque()

    def fileno(self) -> int:
        """For selectors."""
        return self._sock.fileno()

    def encode(self, message: msgspec.Struct) -> bytes:
        """A frame's bytes, to be sent on several links."""
        body = self._encoder.encode(message)
        return LENGTH.pack(len(body)) + body

    def send(self, message: msgspec.Struct) -> None:
        """Queue a message and send what the socket takes. Raise LinkClosed."""
        self.send_frame(self.encode(message))

    def send_frame(self, frame: bytes) -> None:
        """Like `send`, for a frame made by `encode`."""
        with self._sending:
            self._outbox += frame
        self.flush()

    def flush(self, timeout_s: float = 0.0) -> bool:
        """Send what is queued, waiting up to `timeout_s`; True when nothing is left. Raise LinkClosed."""
        deadline = time.monotonic() + timeout_s
        with self._sending:
            while self._outbox:
                try:
                    sent = self._sock.send(self._outbox)
                except BlockingIOError:
                    left = deadline - time.monotonic()
                    if left <= 0 or not self._wait(select.POLLOUT, left):
                        return False
                    continue
                except OSError as error:
                    raise LinkClosed(str(error)) from None
                del self._outbox[:sent]
        return True

    @property
    def backlog(self) -> int:
        """Bytes queued and not sent."""
        return len(self._outbox)

    def receive(self, timeout_s: float | None) -> Received | None:
        """The next message, waiting up to `timeout_s` (None: for ever); None on time-out. Raise LinkClosed."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._frames:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = self._wait(select.POLLIN | (select.POLLOUT if self._outbox else 0), left)
            if self._outbox:
                self.flush()
            if ready & ~select.POLLOUT:
                self._read()
            elif deadline is not None and time.monotonic() >= deadline:
                return None
        return self._frames.popleft()

    def _wait(self, events: int, timeout_s: float | None) -> int:
        """The events that came within the time (0: none); a hang-up counts as readable."""
        poll = select.poll()
        poll.register(self._sock, events)
        ready = poll.poll(None if timeout_s is None else timeout_s * 1000)
        return ready[0][1] if ready else 0

    def _read(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise LinkClosed(str(error)) from None
        if not data:
            raise LinkClosed("the other side closed the link")
        self._inbox += data
        start = 0
        while len(self._inbox) - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._inbox, start)
            if length > MAX_FRAME:
                raise LinkClosed(f"a frame of {length} bytes is more than the {MAX_FRAME} allowed")
            stop = start + LENGTH.size + length
            if stop > len(self._inbox):
                break
            self._frames.append(self._decoder.decode(memoryview(self._inbox)[start + LENGTH.size : stop]))
            start = stop
        del self._inbox[:start]

    def close(self) -> None:
        """Close the socket; the other side sees LinkClosed."""
        self._sock.close()
