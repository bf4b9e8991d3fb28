"""What waits to be published: droppable frames, and everything else in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import msgspec

MAX_FRAME_BYTES = 4 * 1024 * 1024
MAX_KEPT_BYTES = 64 * 1024 * 1024
MAX_BATCH_BYTES = 256 * 1024


class Publication(msgspec.Struct, frozen=True):
    """Bytes for a topic. `expiry_s` bounds how long the broker keeps it (None: for ever)."""

    topic: str
    payload: bytes
    qos: int
    retain: bool = False
    expiry_s: int | None = None
    droppable: bool = False


class Outgoing:
    """Thread-safe queue. Over its byte limits the oldest droppable publications go first and are counted in `dropped`;
    others are refused only when far more is waiting than a broker's pause explains, and counted in `lost`."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.dropped = 0
        self.lost = 0
        self._wake = wake
        self._lock = threading.Lock()
        self._queue: deque[Publication] = deque()
        self._frame_bytes = 0
        self._kept_bytes = 0

    def put(self, publication: Publication) -> None:
        """Queue one; never waits."""
        with self._lock:
            was_empty = not self._queue
            size = len(publication.payload)
            if publication.droppable:
                self._frame_bytes += size
            elif self._kept_bytes + size > MAX_KEPT_BYTES:
                self.lost += 1
                return
            else:
                self._kept_bytes += size
            self._queue.append(publication)
            if self._frame_bytes > MAX_FRAME_BYTES:
                self._drop_frames()
        if was_empty:
            self._wake()

    def take(self) -> list[Publication]:
        """The oldest publication and those right behind it that one packet can carry with it; empty when none waits."""
        with self._lock:
            batch: list[Publication] = []
            size = 0
            while self._queue and (not batch or (_joins(batch[0], self._queue[0]) and size < MAX_BATCH_BYTES)):
                publication = self._queue.popleft()
                self._forget(publication)
                size += len(publication.payload)
                batch.append(publication)
            return batch

    def put_back(self, batch: list[Publication]) -> None:
        """The batch could not be published: it goes first again."""
        with self._lock:
            for publication in reversed(batch):
                self._queue.appendleft(publication)
                if publication.droppable:
                    self._frame_bytes += len(publication.payload)
                else:
                    self._kept_bytes += len(publication.payload)

    def _drop_frames(self) -> None:
        kept: deque[Publication] = deque()
        for publication in self._queue:
            if publication.droppable and self._frame_bytes > MAX_FRAME_BYTES // 2:
                self._frame_bytes -= len(publication.payload)
                self.dropped += 1
            else:
                kept.append(publication)
        self._queue = kept

    def _forget(self, publication: Publication) -> None:
        if publication.droppable:
            self._frame_bytes -= len(publication.payload)
        else:
            self._kept_bytes -= len(publication.payload)


def _joins(first: Publication, other: Publication) -> bool:
    """Retained publications travel alone: the broker keeps only the last payload of a topic."""
    return not first.retain and not other.retain and first.topic == other.topic and first.qos == other.qos
