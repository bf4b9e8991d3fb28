"""What the operator does with recordings: open one or two, move in them, come back to the live session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App

from sessions.recording.errors import RecordingError
from tui.console.recordings import Recordings
from tui.console.sessions import Sessions

if TYPE_CHECKING:
    from sessions.replay import ReplayChannel


class Replays:
    """Shows recordings over the session, and moves the one that is shown (a second one beside it follows)."""

    def __init__(self, app: App[Any], sessions: Sessions, recordings: Recordings) -> None:
        self._app = app
        self._sessions = sessions
        self._recordings = recordings

    def open(self, path: Path) -> bool:
        """Replay a recording in the live screen; False when it cannot be read, which is said."""
        return self._try(lambda: self._sessions.show_replay(path), "live")

    def open_beside(self, first: Path, second: Path, align: str | None = None) -> bool:
        """Replay two recordings side by side (`align`: see `anchors`); False when they cannot be, which is said."""
        return self._try(lambda: self._sessions.show_beside(first, second, align), "together")

    def _try(self, show: Callable[[], None], mode: str) -> bool:
        try:
            show()
        except (RecordingError, OSError) as error:
            self._app.notify(str(error), severity="error", timeout=10)
            return False
        self._app.switch_mode(mode)
        return True

    def show_beside(self) -> None:
        """The screen of the two recordings."""
        if self._sessions.beside.second is not None:
            self._app.switch_mode("together")
        else:
            self._app.notify("Mark two recordings on screen 5 (space), then press enter")

    def look_back(self) -> None:
        """Replay this session while it goes on: the file being recorded, or the last minutes."""
        if self._sessions.replay is not None:
            return
        path = self._recordings.look_back()
        if path is not None and self.open(path):
            self.seek(lambda replay: replay.go_to(replay.extent_ns[1]))

    def to_live(self) -> None:
        """From looking back to now; in a recording that is still written, to its end."""
        if not self._sessions.back_to_live():
            self.seek(lambda replay: replay.follow())
        elif self._app.current_mode == "together":
            self._app.switch_mode("live")

    def toggle(self) -> bool:
        """Play or pause; False where no replay is shown."""
        self.seek(lambda replay: replay.toggle())
        return self._sessions.replay is not None

    def seek(self, move: Callable[[ReplayChannel], None]) -> None:
        """Move the replay, where one is shown."""
        if self._sessions.replay is not None:
            move(self._sessions.replay.replay)

    def change_speed(self, factor: float) -> None:
        """Replay faster or slower."""
        self.seek(lambda replay: replay.set_speed(replay.player.speed * factor))

    def ask_time(self) -> None:
        """Go to a time of the recording."""
        if self._sessions.replay is not None:
            from tui.console.screens.ask_time import AskTime

            self._app.push_screen(AskTime(), self._go_to_seconds)

    def _go_to_seconds(self, seconds: float | None) -> None:
        if seconds is not None:
            self.seek(lambda replay: replay.go_to(replay.extent_ns[0] + int(seconds * 1e9)))

    def go_to_share(self, share: float) -> None:
        """Go to this share (0 to 1) of the recording."""
        self.seek(lambda replay: replay.go_to(_at_share(replay, share)))


def _at_share(replay: ReplayChannel, share: float) -> int:
    first, last = replay.extent_ns
    return first + int(share * (last - first))
