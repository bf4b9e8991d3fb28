"""A second recording beside the replay that is shown, in lock-step with it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from tui.console.session.replayed import ReplaySession
from tui.console.store.store import Store

if TYPE_CHECKING:
    from sessions.replay.alignment import Anchor


class Beside:
    """The second recording (B) has a store of its own; it stands where the first (A, the replay shown) does, counted
    from an instant of each."""

    def __init__(self, first_store: Store) -> None:
        self.store = Store()
        self.first: ReplaySession | None = None
        self.second: ReplaySession | None = None
        self.anchors: tuple[Anchor, Anchor] | None = None
        self._first_store = first_store

    def open(self, second: Path, first: ReplaySession, anchors: tuple[Anchor, Anchor]) -> None:
        """Show `second` beside `first`, with the two anchors over each other. Raise RecordingError."""
        from sessions.replay.following import FollowingPlayer

        offset_ns = anchors[1].t_ns - anchors[0].t_ns
        player = functools.partial(FollowingPlayer, leader=first.replay, offset_ns=offset_ns)
        self.second = ReplaySession(second, player)
        self.first, self.anchors = first, anchors
        self.second.open()

    def fill(self) -> None:
        """Take what has been played of the second."""
        if self.second is not None:
            self.second.fill(self.store)

    def close(self) -> None:
        """Release the second file. May be called again, and from any thread."""
        if self.second is not None:
            self.second.close()

    def forget(self) -> None:
        """Close, and forget what was known."""
        self.close()
        self.first = self.second = self.anchors = None
        self.store.reset()

    @property
    def since_ns(self) -> int:
        """Time since the anchors; negative before them."""
        if self.first is None or self.anchors is None:
            return 0
        return self.first.replay.position_ns - self.anchors[0].t_ns

    def session_now_ns(self) -> int:
        """The present on the clock of B's session, also before B begins and after it ends."""
        return self._first_store.now_ns + self.offset_ns()

    def anchored(self, is_second: bool) -> tuple[int, str]:
        """The anchor of one of the two: its instant on the session's clock, and what it is."""
        session, store = (self.second, self.store) if is_second else (self.first, self._first_store)
        if session is None or self.anchors is None:
            return 0, ""
        anchor = self.anchors[is_second]
        return session.session_ns(store, anchor.t_ns), anchor.what

    def offset_ns(self) -> int:
        """What takes an instant of A's session to the same instant of B's, as they are laid over each other."""
        return self.anchored(True)[0] - self.anchored(False)[0]
