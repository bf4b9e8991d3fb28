"""A GPU's energy counter, as frames carry it."""

from __future__ import annotations


class EnergyCounter:
    """Mean watts by the counter, which is read more seldom than frames are sent.

    A frame carries the last reading, however old; only where it changes is it known when it was taken.
    """

    def __init__(self) -> None:
        self._seen: float | None = None
        self._changes: tuple[tuple[int, float], tuple[int, float]] | None = None

    def add(self, t_ns: int, joules: float) -> None:
        """Take in what a frame carries, oldest first."""
        if self._seen is not None and joules != self._seen:
            change = (t_ns, joules)
            self._changes = (self._changes[0] if self._changes else change, change)
        self._seen = joules

    def watts(self) -> float | None:
        """From the first change to the last; None before there were two, or after the counter went back."""
        if self._changes is None:
            return None
        (first_ns, first), (last_ns, last) = self._changes
        return (last - first) / ((last_ns - first_ns) / 1e9) if last > first and last_ns > first_ns else None
