"""Where a replay stands and what it plays next. No threads: `advance` is told what time it is."""

from __future__ import annotations

from sessions.messages import Jumped, Message
from sessions.recording.markers import Mark
from sessions.recording.reader import Recording
from sessions.replay.past import Past

FRAME_NS = 100_000_000
MIN_SPEED, MAX_SPEED = 0.25, 16.0
LOOKBACK_S = 30.0
_NEAR_NS = 5_000_000_000
"""Up to this far ahead a move plays what lies between, instead of starting anew from a keyframe."""


class Player:
    """Plays one recording. Positions are ns of the recorder's clock; every move returns the messages to hand on.

    A move back, or far ahead, returns a Jumped, then what led up to the new position (see `Past`; frames of the last
    `lookback_s`): a viewer that starts from nothing shows what it showed live.
    """

    def __init__(self, recording: Recording, lookback_s: float = LOOKBACK_S) -> None:
        self.recording = recording
        self.start_ns, self.end_ns = recording.extent()
        self.position_ns = self.start_ns - 1
        self.playing = False
        self.speed = 1.0
        self.following = False
        """Whether it stays at the end of a recording that is still being written."""
        self._past = Past(recording, int(lookback_s * 1e9))
        self._last_now_ns: int | None = None
        self._looked_ns = 0

    @property
    def growing(self) -> bool:
        """Whether the recording has not been finished (it is being written, or its recorder was killed)."""
        return self.recording.ending is None

    def play(self) -> None:
        """Go on from here."""
        self.playing = True
        self._last_now_ns = None

    def pause(self) -> None:
        """Stand still."""
        self.playing = False
        self.following = False

    def set_speed(self, speed: float) -> None:
        """Play `speed` times as fast as it happened, within MIN_SPEED and MAX_SPEED."""
        self.speed = min(MAX_SPEED, max(MIN_SPEED, speed))
        self.following = False

    def follow(self) -> list[Message]:
        """Go to the end, and stay there as it grows."""
        self._look()
        messages = self.go_to(self.end_ns)
        self.play()
        self.speed = 1.0
        self.following = self.growing
        return messages

    def advance(self, now_ns: int) -> list[Message]:
        """What became due since the last call; `now_ns` is the viewer's monotonic clock."""
        since = 0 if self._last_now_ns is None else now_ns - self._last_now_ns
        self._last_now_ns = now_ns
        if not self.playing:
            return []
        if now_ns - self._looked_ns >= FRAME_NS:
            self._looked_ns = now_ns
            self._look()
        target = self.end_ns if self.following else min(self.position_ns + int(since * self.speed), self.end_ns)
        messages = self._play_to(target)
        if self.position_ns >= self.end_ns and not self.following:
            self.following = self.growing
            self.playing = self.following
        return messages

    def step(self, frames: int = 1) -> list[Message]:
        """Move by frames of a tenth of a second, back when negative, and stand still."""
        self.pause()
        return self.go_to(self.position_ns + frames * FRAME_NS)

    def jump(self, seconds: float) -> list[Message]:
        """Move by seconds, back when negative."""
        return self.go_to(self.position_ns + int(seconds * 1e9))

    def go_to(self, t_ns: int) -> list[Message]:
        """Move to an instant (or to the nearest end)."""
        self._look()
        self.following = False
        t_ns = min(max(t_ns, self.start_ns), self.end_ns)
        if self.position_ns <= t_ns <= self.position_ns + _NEAR_NS:
            return self._play_to(t_ns)
        self.position_ns = t_ns
        return [Jumped(source=self.recording.origin.host, t_ns=t_ns, to_ns=t_ns), *self._past.until(t_ns)]

    def next_mark(self) -> Mark | None:
        """The first mark after this instant."""
        marks = self.recording.marks(self.position_ns + 1)
        return marks[0] if marks else None

    def previous_mark(self) -> Mark | None:
        """The last mark before this instant."""
        marks = self.recording.marks(end_ns=self.position_ns - 1)
        return marks[-1] if marks else None

    def _look(self) -> None:
        self.start_ns, self.end_ns = self.recording.extent()

    def _play_to(self, t_ns: int) -> list[Message]:
        if t_ns <= self.position_ns:
            return []
        messages = [record.message for record in self.recording.records(self.position_ns + 1, t_ns)]
        self.position_ns = t_ns
        return messages
