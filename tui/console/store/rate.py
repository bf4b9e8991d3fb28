"""The rate of a counter that only grows."""

from __future__ import annotations

from collections import deque

from tui.console.store.series import Series

NS = 1_000_000_000


class Rate:
    """Growth a second of a counter, over the last `window_ns`; a counter that falls has been restarted."""

    def __init__(self, capacity: int, window_ns: int = NS) -> None:
        self.series = Series(capacity)
        self._window_ns = window_ns
        self._readings: deque[tuple[int, float]] = deque()

    def observe(self, t_ns: int, total: float) -> None:
        """Take a reading of the counter."""
        readings = self._readings
        if readings and total < readings[-1][1]:
            readings.clear()
        if readings and t_ns <= readings[-1][0]:
            return
        readings.append((t_ns, total))
        while len(readings) > 2 and readings[1][0] <= t_ns - self._window_ns:
            readings.popleft()
        first_t_ns, first = readings[0]
        if t_ns > first_t_ns:
            self.series.append(t_ns, (total - first) * NS / (t_ns - first_t_ns))
