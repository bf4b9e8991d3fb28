"""Records a channel: its own thread takes what arrives ten times a second and writes it to a file.

Whatever happens to the disk, the channel and the engine go on; the recording ends and says why.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from sessions.channel.interface import Channel, ChannelClosed, Subscription
from sessions.clock import Clock, MonotonicClock
from sessions.messages import KINDS, Message
from sessions.recording import meta
from sessions.recording.errors import RecordingError
from sessions.recording.writer import RecordingWriter

TICK_S = 0.1
QUEUE_FRAMES = 16_384
_CLOSE_S = 5.0
EVERYTHING: tuple[type[Message], ...] = tuple(KINDS.values())


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """When to go on in a next file, and how many files of the series to keep (0: all)."""

    max_bytes: int | None = None
    max_age_s: float | None = None
    keep: int = 0


class Arrivals:
    """Gives each message the instant at which it arrived, told from its own time where that can be believed.

    Messages are taken a tick at a time; their own `t_ns` orders them within it. A time in the future, or before the
    last one (another host's clock), becomes now, or the last one.
    """

    def __init__(self) -> None:
        self._last_ns = 0

    def at(self, message: Message, now_ns: int) -> int:
        """Arrival of the next message, taken at `now_ns`; never decreases."""
        self._last_ns = max(self._last_ns, min(message.t_ns, now_ns))
        return self._last_ns


class Recorder:
    """Records everything that `channel` carries from now on, retained values first.

    The first file is `path`; with limits the next ones are named `NAME-2.herd`, `NAME-3.herd`, ... `on_stop` is
    called once, from the recorder's thread, when the recording ends by itself: with the reason, one line.
    Raise RecordingError when the first file cannot be made.
    """

    def __init__(
        self,
        channel: Channel,
        path: str | Path,
        limits: Limits | None = None,
        on_stop: Callable[[str], None] | None = None,
        command_line: Sequence[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._first = Path(path)
        self._limits = limits or Limits()
        self._on_stop = on_stop
        self._clock = clock or MonotonicClock()
        self._origin = meta.origin(command_line)
        self._writer = RecordingWriter(self._first, self._origin)
        self._arrivals = Arrivals()
        self._opened_ns = self._clock.now_ns()
        self.files = [self._first]
        self.stopped: str | None = None
        """Why the recording ended, once it has."""
        self._stop = threading.Event()
        self._subscription: Subscription = channel.subscribe(EVERYTHING, capacity=QUEUE_FRAMES)
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    @property
    def path(self) -> Path:
        """The file being written now."""
        return self.files[-1]

    def close(self) -> None:
        """Write what has arrived and finish the file."""
        self._stop.set()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        reason = self._record()
        self._subscription.close()
        self.stopped = reason
        if not self._stop.is_set() and self._on_stop is not None:
            self._on_stop(reason)

    def _record(self) -> str:
        """Record until told to stop, until the channel is gone or the disk refuses; return why."""
        try:
            while not self._stop.wait(TICK_S):
                self._tick()
                if self._ended():
                    break
            self._tick()
        except RecordingError as error:
            self._writer.abandon()
            return f"recording stopped: {error}"
        reason = "the recording was stopped" if self._stop.is_set() else "the session ended"
        self._writer.close(reason)
        return reason

    def _tick(self) -> None:
        now = self._clock.now_ns()
        for message in self._subscription.drain():
            self._writer.write(self._arrivals.at(message, now), message)
        self._writer.commit()
        if self._over_limit(now):
            self._rotate(now)

    def _ended(self) -> bool:
        try:
            message = self._subscription.get(0)
        except ChannelClosed:
            return True
        if message is not None:
            self._writer.write(self._arrivals.at(message, self._clock.now_ns()), message)
        return False

    def _over_limit(self, now_ns: int) -> bool:
        limits = self._limits
        if limits.max_age_s is not None and now_ns - self._opened_ns >= limits.max_age_s * 1e9:
            return True
        return limits.max_bytes is not None and self._writer.size_bytes() >= limits.max_bytes

    def _rotate(self, now_ns: int) -> None:
        part = len(self.files) + 1
        path = self._first.with_name(f"{self._first.stem}-{part}{self._first.suffix}")
        origin = msgspec.structs.replace(self._origin, part=part)
        following = RecordingWriter(path, origin, self._writer.state)
        self._writer.close(f"goes on in {path.name}")
        self._writer = following
        self._opened_ns = now_ns
        self.files.append(path)
        if self._limits.keep and len(self.files) > self._limits.keep:
            for old in self.files[: -self._limits.keep]:
                with contextlib.suppress(OSError):
                    old.unlink(missing_ok=True)
