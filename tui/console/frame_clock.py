"""How often the screen is drawn: as often as the link takes it."""

from __future__ import annotations

from collections.abc import Mapping

LOCAL_FPS = 10.0
SSH_FPS = 4.0
SLOWEST_FPS = 1.0
BACKLOG_LIMIT = 2
"""Writes waiting for the terminal beyond which it is not keeping up."""
CALM_FRAMES = 20
"""Frames without any backlog after which one step faster is tried."""
MIN_WAIT_S = 0.01
"""Left to keys and messages between two frames."""
BUSY_SHARE = 0.5
"""Most of a frame's time that drawing may take."""


class FrameClock:
    """The frame rate: starts at what the link suggests, halves when writes pile up or drawing takes too long, and
    recovers step by step."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        remote = bool(environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"))
        self.most_fps = SSH_FPS if remote else LOCAL_FPS
        self.fps = self.most_fps
        self._calm = 0
        self._due_s: float | None = None

    @property
    def period_s(self) -> float:
        """Seconds to the next frame."""
        return 1 / self.fps

    def wait_s(self, now_s: float) -> float:
        """Seconds from `now_s` to the next frame. Frames keep to a grid, whatever drawing takes; those that were missed
        are not made up for."""
        due_s = now_s if self._due_s is None else self._due_s
        self._due_s = max(due_s + self.period_s, now_s)
        return max(MIN_WAIT_S, self._due_s - now_s)

    def drawn(self, backlog: int, cost_s: float) -> None:
        """A frame was drawn in `cost_s`; `backlog` writes still wait for the terminal."""
        if backlog > BACKLOG_LIMIT or cost_s > BUSY_SHARE * self.period_s:
            self.fps = max(SLOWEST_FPS, self.fps / 2)
            self._calm = 0
            return
        self._calm = self._calm + 1 if backlog == 0 else 0
        if self._calm >= CALM_FRAMES and self.fps < self.most_fps:
            self.fps = min(self.most_fps, self.fps * 1.5)
            self._calm = 0
