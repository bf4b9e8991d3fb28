"""The flight recorder: the last minutes of a session, always, in memory; saved only when somebody asks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from sessions.channel.interface import Channel, ChannelClosed
from sessions.clock import Clock, MonotonicClock
from sessions.recording import meta
from sessions.recording.recorder import EVERYTHING, QUEUE_FRAMES, TICK_S, Arrivals
from sessions.recording.writer import FOLD_NS, RecordingWriter

_CLOSE_S = 5.0


class FlightRecorder:
    """Keeps the last `minutes` of what `channel` carries, compressed as in a file (about 1 MB a minute for 8 busy
    GPUs), and the state before them."""

    def __init__(
        self,
        channel: Channel,
        minutes: float = 5.0,
        command_line: Sequence[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._keep_ns = int(minutes * 60e9)
        self._clock = clock or MonotonicClock()
        self._lock = threading.Lock()
        self._writer = RecordingWriter(":memory:", meta.origin(command_line))
        self._arrivals = Arrivals()
        self._pruned_ns = self._clock.now_ns()
        self._stop = threading.Event()
        self._subscription = channel.subscribe(EVERYTHING, capacity=QUEUE_FRAMES)
        self._thread = threading.Thread(target=self._run, name="flight-recorder", daemon=True)
        self._thread.start()

    def save(self, path: str | Path) -> None:
        """Write what is kept into a new recording; raise RecordingError."""
        with self._lock:
            self._take()
            ending = meta.Ending(t_ns=self._clock.now_ns(), reason="saved from the flight recorder")
            self._writer.copy_to(Path(path), ending)

    def close(self) -> None:
        """Stop, and forget everything."""
        self._stop.set()
        self._thread.join(_CLOSE_S)
        with self._lock:
            self._subscription.close()
            self._writer.abandon()

    def _run(self) -> None:
        while not self._stop.wait(TICK_S):
            with self._lock:
                self._take()
            if self._over():
                return

    def _take(self) -> None:
        now = self._clock.now_ns()
        for message in self._subscription.drain():
            self._writer.write(self._arrivals.at(message, now), message)
        self._writer.commit()
        if now - self._pruned_ns >= FOLD_NS:
            self._pruned_ns = now
            self._writer.prune(now - self._keep_ns)

    def _over(self) -> bool:
        """Whether the channel is gone; what is kept can still be saved."""
        try:
            message = self._subscription.get(0)
        except ChannelClosed:
            return True
        if message is not None:
            with self._lock:
                self._writer.write(self._arrivals.at(message, self._clock.now_ns()), message)
        return False
