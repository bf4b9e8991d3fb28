"""A channel that a recording speaks through. Viewers subscribe to it as to a live one; commands are refused."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from sessions.channel.endpoint import Endpoint
from sessions.channel.subscription import QueueSubscription
from sessions.clock import Clock, MonotonicClock
from sessions.messages import Command, Message, Reply
from sessions.recording.errors import RecordingError
from sessions.recording.reader import Recording
from sessions.recording.state import SessionState
from sessions.replay.player import LOOKBACK_S, Player

_PERIOD_S = 0.02
_CLOSE_S = 2.0
_CAPACITY = 65_536
REFUSAL = "this is a replay: nothing can be changed in a recording"


class ReplayChannel(Endpoint):
    """Plays the recording at `path`, paused at its start; raise RecordingError when it cannot be read.

    Controls may be called from any thread and return at once; they take effect in the replay's own thread, in order.
    With `threaded` False nothing runs by itself: `pump` does one round (for tests and for headless use).
    `on_error` is called with one line, from the replay's thread, when the file can no longer be read. `player` makes
    what decides where it stands, from the recording and `lookback_s`.
    """

    def __init__(
        self,
        path: str | Path,
        clock: Clock | None = None,
        lookback_s: float = LOOKBACK_S,
        threaded: bool = True,
        on_error: Callable[[str], None] | None = None,
        player: Callable[[Recording, float], Player] = Player,
    ) -> None:
        super().__init__(f"replay/{Path(path).name}")
        self.recording = Recording(path)
        self.player = player(self.recording, lookback_s)
        self._told_ns = self.player.position_ns
        self._clock = clock or MonotonicClock()
        self._on_error = on_error
        self._state = SessionState(self.recording.seek(self.player.position_ns).state)
        self._todo: deque[Callable[[], Iterable[Message] | None]] = deque()
        self._wake = threading.Event()
        self._stop = False
        self.attach(_Refuser(self, self._todo.append, self._wake.set))
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True) if threaded else None
        if self._thread is not None:
            self._thread.start()

    # --- what a viewer shows ---

    @property
    def position_ns(self) -> int:
        """The instant shown (recorder's clock): all messages up to it have been handed on."""
        return self._told_ns

    @property
    def extent_ns(self) -> tuple[int, int]:
        """First and last instant; the last one grows while the file is written."""
        return self.player.start_ns, self.player.end_ns

    def now_ns(self) -> int:
        """The instant shown: this channel is the Clock of its viewers."""
        return self._told_ns

    # --- controls ---

    def play(self) -> None:
        """Go on from here."""
        self._do(self.player.play)

    def pause(self) -> None:
        """Stand still."""
        self._do(self.player.pause)

    def toggle(self) -> None:
        """Play when paused, pause when playing."""
        self._do(lambda: self.player.pause() if self.player.playing else self.player.play())

    def set_speed(self, speed: float) -> None:
        """Play 0.25 to 16 times as fast as it happened."""
        self._do(lambda: self.player.set_speed(speed))

    def step(self, frames: int = 1) -> None:
        """Move by tenths of a second, and stand still."""
        self._do(lambda: self.player.step(frames))

    def jump(self, seconds: float) -> None:
        """Move by seconds."""
        self._do(lambda: self.player.jump(seconds))

    def go_to(self, t_ns: int) -> None:
        """Move to an instant."""
        self._do(lambda: self.player.go_to(t_ns))

    def follow(self) -> None:
        """Move to the end and stay there while the file grows."""
        self._do(self.player.follow)

    def next_mark(self) -> None:
        """Move to the next mark, if there is one."""
        self._do(lambda: self._to_mark(forward=True))

    def previous_mark(self) -> None:
        """Move to the mark before, if there is one."""
        self._do(lambda: self._to_mark(forward=False))

    def subscribe(
        self, kinds: Sequence[type[Message]], sources: Sequence[str] = (), capacity: int = _CAPACITY
    ) -> QueueSubscription:
        """Receive messages as they are played; what is known at this instant comes first.

        The queue is large enough for the past that a jump brings, whatever `capacity` says.
        """
        return super().subscribe(kinds, sources, max(capacity, _CAPACITY))

    def close(self, reason: str = "") -> None:
        """End the replay and release the file."""
        self._stop = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)
        else:
            self.recording.close()
        super().close(reason or "the replay was closed")

    def pump(self) -> None:
        """One round: what was asked for, then what became due. Only without a thread of its own."""
        while self._todo:
            self._hand_on(self._todo.popleft()() or ())
        self._hand_on(self.player.advance(self._clock.now_ns()))

    def _do(self, action: Callable[[], Iterable[Message] | None]) -> None:
        self._todo.append(action)
        self._wake.set()

    def _to_mark(self, forward: bool) -> list[Message]:
        mark = self.player.next_mark() if forward else self.player.previous_mark()
        return self.player.go_to(mark.t_ns) if mark is not None else []

    def _hand_on(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._state.update(message)
            self.receive_message(message)
        self._told_ns = self.player.position_ns

    def _welcome(self, sub: int, kinds: frozenset[type[Message]], sources: frozenset[str]) -> None:
        for message in self._state.messages():
            if type(message) in kinds and (not sources or message.source in sources):
                self.receive_for(sub, message)
        self.receive_confirmation(sub)

    def _run(self) -> None:
        try:
            while not self._stop:
                self.pump()
                self._wake.wait(_PERIOD_S if self.player.playing else None)
                self._wake.clear()
        except RecordingError as error:
            if self._on_error is not None:
                self._on_error(str(error))
            self.shut(str(error))
        finally:
            self.recording.close()


class _Refuser:
    """The uplink of a replay: subscriptions are served by its own thread, commands are refused."""

    def __init__(
        self, channel: ReplayChannel, todo: Callable[[Callable[[], None]], None], wake: Callable[[], None]
    ) -> None:
        self._channel = channel
        self._todo = todo
        self._wake = wake

    def publish(self, message: Message) -> None:
        pass

    def subscribe(self, sub: int, kinds: Iterable[type[Message]], sources: Iterable[str]) -> None:
        wanted, allowed = frozenset(kinds), frozenset(sources)
        self._todo(lambda: self._channel._welcome(sub, wanted, allowed))
        self._wake()

    def unsubscribe(self, sub: int) -> None:
        pass

    def serve(self, sub: int, kinds: Iterable[type[Message]]) -> None:
        pass

    def command(self, command: Command) -> None:
        source, now = self._channel.source, self._channel.now_ns()
        refusal = Reply(source=source, t_ns=now, id=command.id, to=command.source, ok=False, reason=REFUSAL)
        self._todo(lambda: self._channel.receive_reply(refusal))
        self._wake()

    def reply(self, reply: Reply) -> None:
        pass

    def close(self, reason: str) -> None:
        pass
