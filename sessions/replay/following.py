"""A player that stands where another one does, a fixed time away: two recordings in lock-step."""

from __future__ import annotations

from typing import Protocol

from sessions.messages import Message
from sessions.recording.reader import Recording
from sessions.replay.player import LOOKBACK_S, Player


class Leader(Protocol):
    """What is followed."""

    @property
    def position_ns(self) -> int:
        """Where it stands, ns of its own recorder's clock."""
        ...


class FollowingPlayer(Player):
    """Plays `recording` at the leader's position + `offset_ns`, or at its nearest end.

    It has no pace of its own: each `advance` brings it to where the leader stands, so it never drifts.
    """

    def __init__(self, recording: Recording, lookback_s: float = LOOKBACK_S, *, leader: Leader, offset_ns: int) -> None:
        super().__init__(recording, lookback_s)
        self._leader = leader
        self._offset_ns = offset_ns
        self._asked_ns: int | None = None
        self.playing = True

    def advance(self, now_ns: int) -> list[Message]:
        """What lies between here and where the leader stands."""
        wanted = self._leader.position_ns + self._offset_ns
        if wanted == self._asked_ns:
            return []
        self._asked_ns = wanted
        return self.go_to(wanted)
