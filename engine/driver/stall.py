"""Notices that micro-batches are outstanding and none completes: a hung collective, or a stage that waits for ever."""

from __future__ import annotations

STALL_NS = 30 * 1_000_000_000


class StallWatch:
    """Looks at the driver's progress now and then; warns once every STALL_NS of standstill."""

    def __init__(self, now_ns: int) -> None:
        self._steps = -1
        self._since_ns = now_ns
        self._warned_ns = now_ns

    def look(self, steps: int, outstanding: int, now_ns: int) -> str | None:
        """`steps`: micro-batches submitted so far. Return a warning when one is due."""
        completed = steps - outstanding
        if completed != self._steps or not outstanding:
            self._steps = completed
            self._since_ns = self._warned_ns = now_ns
            return None
        if now_ns - self._warned_ns < STALL_NS:
            return None
        self._warned_ns = now_ns
        seconds = (now_ns - self._since_ns) / 1e9
        return f"no micro-batch has completed for {seconds:.0f} s, {outstanding} are outstanding"
