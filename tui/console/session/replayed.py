"""A recording, replayed into the same store as a live session."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sessions.channel.interface import Channel
from sessions.clock import source_id
from sessions.messages import EngineState, GpuFrame, Jumped, KnobState, Message, QueueFrame, StageFrame, Verdicts
from sessions.recording.errors import RecordingError
from sessions.recording.markers import Mark
from tui.console.session.replay_state import ReplayState
from tui.console.store.store import Store

if TYPE_CHECKING:
    from sessions.recording.reader import Recording
    from sessions.replay import Player

LOOK_AGAIN_S = 5.0
JOIN_S = 2.0
SAY_AGAIN_NS, SAY_AGAIN_S = 500_000_000, 1.0
"""How far the shown instant moves, or how long new evidence waits, before it is diagnosed anew."""
MOST_UNFED = 65_536
"""A jump tells ten minutes of counters and half a minute of frames."""
DIAGNOSED: tuple[type[Message], ...] = (EngineState, GpuFrame, Jumped, KnobState, QueueFrame, StageFrame)


class ReplaySession:
    """Plays from the start, and says what it shows through `state`. Raise RecordingError when it cannot be read.

    Where the recording has no verdicts of its own, what is shown is diagnosed meanwhile. `player` decides where it
    stands, where it does not go its own way.
    """

    restartable = False
    status = ""
    address: str | None = None
    read_only = "this is a recording: nothing can be changed in it"
    channel: Channel | None = None

    def __init__(self, path: Path, player: Callable[[Recording, float], Player] | None = None) -> None:
        from sessions.replay import Player, ReplayChannel  # costs sqlite and numpy: only where a recording is opened

        self.title = path.name
        self.failure: str | None = None
        self.replay = ReplayChannel(path, on_error=self._failed, player=player or Player)
        self._path = path
        self._subscription = self.replay.subscribe(Store().kinds)
        self._index = _Index(path)
        self._diagnosis = _Diagnosis(self.replay.source)

    def open(self) -> None:
        """Begin to play."""
        self.replay.play()
        self._index.start()

    def fill(self, store: Store) -> None:
        """Take what has been played, and move the store to the instant shown."""
        at_ns, messages = self.replay.position_ns, self._subscription.drain()
        while at_ns != self.replay.position_ns:  # it moved meanwhile: what led up to there has come as well
            at_ns = self.replay.position_ns
            messages += self._subscription.drain()
        store.apply(messages)
        store.advance(self.session_ns(store, at_ns))
        if self._index.diagnosed is False:
            store.apply(self._diagnosis.update(messages, store.now_ns))

    def session_ns(self, store: Store, t_ns: int) -> int:
        """An instant of the recorder's clock on the session's: the same, where the recorder ran on the same host."""
        if store.clocks.is_of(self._index.host):
            return t_ns
        return store.clocks.from_wall(self._index.utc_ns(t_ns)) or t_ns

    def state(self) -> ReplayState:
        """Where it stands."""
        player = self.replay.player
        return ReplayState(
            player.position_ns,
            player.start_ns,
            player.end_ns,
            player.playing,
            player.speed,
            player.following,
            player.growing,
            self._index.marks,
            self._index.rates,
        )

    def restart(self) -> None:
        """There is no engine to restart."""

    def close(self) -> None:
        """Release the file."""
        self._index.stop()
        self.replay.close()

    def _failed(self, reason: str) -> None:
        self.failure = reason


class _Index:
    """Marks and rollups of the recording, read in a thread and again while it grows."""

    def __init__(self, path: Path) -> None:
        from sessions.recording.reader import Recording

        self.marks: tuple[Mark, ...] = ()
        self.rates: tuple[tuple[int, float], ...] = ()
        self.diagnosed: bool | None = None
        """Whether the recording has verdicts of its own; None until that is known."""
        with Recording(path) as recording:
            self._utc_minus_mono = recording.utc_ns(0)
            self.host = recording.origin.host
        self._path = path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replay-index", daemon=True)

    def utc_ns(self, t_ns: int) -> int:
        """UTC of an instant of the recorder's clock."""
        return t_ns + self._utc_minus_mono

    def start(self) -> None:
        """Begin reading."""
        self._thread.start()

    def stop(self) -> None:
        """End reading."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        from sessions.recording.reader import Recording

        growing, looked_ns = True, 0
        while growing and not self._stop.is_set():
            try:
                with Recording(self._path) as recording:
                    growing = recording.ending is None
                    if not self.diagnosed:
                        until_ns = recording.extent()[1]
                        self.diagnosed = any(True for _ in recording.records(looked_ns, until_ns, (Verdicts,)))
                        looked_ns = until_ns
                    self.marks = tuple(recording.marks())
                    seconds = recording.rollups()
                self.rates = tuple((each.t_ns, each.tokens_per_s) for each in seconds if each.tokens_per_s is not None)
            except RecordingError:
                return
            self._stop.wait(LOOK_AGAIN_S)


class _Diagnosis:
    """Verdicts on what is shown, worked out in a thread, one after the other."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._unfed: deque[Message] = deque(maxlen=MOST_UNFED)
        self._found: deque[Message] = deque()
        self._thread: threading.Thread | None = None
        self._at_ns = 0
        self._begun_s = 0.0
        self._diagnoser: object = None
        self._outdated = False
        """Whether what is being worked out is of an instant that was left."""

    def update(self, messages: list[Message], now_ns: int) -> list[Message]:
        """Take in messages; what has been found since the last call."""
        self._unfed.extend(message for message in messages if isinstance(message, DIAGNOSED))
        self._outdated = self._outdated or any(isinstance(message, Jumped) for message in messages)
        idle = self._thread is None or not self._thread.is_alive()
        found = list(self._found) if not self._outdated else []
        self._found.clear()
        moved = abs(now_ns - self._at_ns) >= SAY_AGAIN_NS
        if idle and self._unfed and (moved or time.monotonic() - self._begun_s >= SAY_AGAIN_S):
            self._at_ns, self._begun_s = now_ns, time.monotonic()
            todo = list(self._unfed)
            self._unfed.clear()
            self._outdated = False
            self._thread = threading.Thread(target=self._work, args=(todo, now_ns), name="diagnosis", daemon=True)
            self._thread.start()
        return found

    def _work(self, messages: list[Message], now_ns: int) -> None:
        from probes.diagnosis.live import LiveDiagnoser  # costs numpy: only where it is used

        diagnoser = self._diagnoser
        if not isinstance(diagnoser, LiveDiagnoser):
            diagnoser = self._diagnoser = LiveDiagnoser(source_id("console"))
        for message in messages:
            diagnoser.feed(message)
        verdicts = diagnoser.verdicts(now_ns)
        if verdicts is not None:
            self._found.append(verdicts)
