"""Each GPU's newest frame and the history of its power."""

from __future__ import annotations

from sessions.messages import GpuFrame
from tui.console.store.series import Series

POWER_SAMPLES = 6000
MEAN_NS = 1_000_000_000
STALE_NS = 3_000_000_000


class Gpu:
    """One GPU of one host."""

    def __init__(self, frame: GpuFrame, t_ns: int) -> None:
        self.frame = frame
        self.t_ns = t_ns
        self.power = Series(POWER_SAMPLES)

    def update(self, frame: GpuFrame, t_ns: int) -> None:
        """Take a new frame, at `t_ns` of the session's clock."""
        self.frame = frame
        self.t_ns = t_ns
        if frame.power_watts is not None:
            self.power.append(t_ns, frame.power_watts)

    @property
    def watts(self) -> float | None:
        """Power over its last second: single samples jump with every micro-batch."""
        mean = self.power.mean_of_last(MEAN_NS)
        return mean if mean is not None else self.frame.power_watts

    def stale(self, now_ns: int) -> bool:
        """Whether nothing has been heard of it for 3 s."""
        return now_ns - self.t_ns > STALE_NS
