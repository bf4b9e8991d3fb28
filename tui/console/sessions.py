"""Which session is shown, and which goes on behind it while the operator looks back."""

from __future__ import annotations

from pathlib import Path

from sessions.channel.interface import Channel
from tui.console.beside import Beside
from tui.console.session.choices import recorded
from tui.console.session.replayed import ReplaySession
from tui.console.session.session import Session
from tui.console.store.store import Store


class Sessions:
    """At most one session is shown. A live one is kept, and kept up to date, while a replay is shown over it."""

    def __init__(self, store: Store) -> None:
        self.shown: Session | None = None
        self.beside = Beside(store)
        self._store = store
        self._behind: Session | None = None
        self._store_behind = Store()

    @property
    def replay(self) -> ReplaySession | None:
        """The replay that is shown, if one is."""
        return self.shown if isinstance(self.shown, ReplaySession) else None

    @property
    def live_channel(self) -> Channel | None:
        """The channel of the live session, shown or behind."""
        session = self._behind or self.shown
        return session.channel if session is not None else None

    def show(self, session: Session) -> None:
        """Open a session and show it."""
        self.shown = session
        session.open()

    def fill(self) -> None:
        """Take what has come, for what is shown and for what goes on behind it."""
        if self.shown is not None:
            self.shown.fill(self._store)
        if self._behind is not None:
            self._behind.fill(self._store_behind)
        self.beside.fill()

    def show_replay(self, path: Path) -> None:
        """Replay a recording over the live session, or instead of the replay shown. Raise RecordingError."""
        session = recorded(str(path))
        self.beside.forget()
        if self.replay is not None:
            self.replay.close()
            self._store.reset()
        elif self.shown is not None:
            self._behind = self.shown
            self._store_behind.reset()
            self._store.exchange(self._store_behind)
        self.show(session)

    def show_beside(self, first: Path, second: Path, align: str | None) -> None:
        """Replay a recording, and a second one beside it, from where they align. Raise RecordingError."""
        from sessions.replay.alignment import anchors

        at = anchors(first, second, align)
        self.show_replay(first)
        assert self.replay is not None
        self.replay.replay.go_to(at[0].t_ns)
        self.beside.open(second, self.replay, at)

    def back_to_live(self) -> bool:
        """End the replay and show the live session behind it; False where there is none."""
        if self.replay is None or self._behind is None:
            return False
        self.beside.forget()
        self.replay.close()
        self.shown, self._behind = self._behind, None
        self._store.exchange(self._store_behind)
        return True

    def close(self) -> None:
        """End every session. May be called from any thread."""
        self.beside.close()
        for session in (self.shown, self._behind):
            if session is not None:
                session.close()

    def forget(self) -> None:
        """End every session and what was known of it."""
        self.close()
        self.beside.forget()
        self.shown = self._behind = None
        self._store.reset()
