"""Where a replay stands, as the scrub bar shows it."""

from __future__ import annotations

import msgspec

from sessions.recording.markers import Mark


class ReplayState(msgspec.Struct, frozen=True):
    """Where a replay stands, for the scrub bar; times are ns of the recorder's clock.

    rates: output tokens a second by second from `start_ns` on (None: nothing measured).
    """

    position_ns: int
    start_ns: int
    end_ns: int
    playing: bool
    speed: float
    following: bool
    growing: bool
    marks: tuple[Mark, ...]
    rates: tuple[tuple[int, float], ...]
