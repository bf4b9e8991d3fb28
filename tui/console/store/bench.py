"""Benchmark runs seen in this session: those in progress, and finished results."""

from __future__ import annotations

import msgspec

from sessions.messages import BenchDone, BenchPhase, BenchStage
from sessions.results import BenchPoint, BenchResult


class BenchProgress(msgspec.Struct, frozen=True):
    """How far a run is; `points` are the concurrencies done so far."""

    run: str
    phase: BenchStage
    progress: float
    concurrency: int | None
    detail: str
    points: tuple[BenchPoint, ...] = ()


class BenchBook:
    """The runs of this session by their name, oldest first."""

    def __init__(self) -> None:
        self.progress: dict[str, BenchProgress] = {}
        self.results: dict[str, BenchResult] = {}
        self.outcome = ""
        """What became of the run that ended last."""
        self.version = 0
        self._given_up: set[str] = set()

    def phase(self, message: BenchPhase) -> None:
        """A run went on; what a run says after it was given up is late news."""
        if message.run in self._given_up:
            return
        before = self.progress.get(message.run)
        points = before.points if before else ()
        if message.point is not None:
            points = (*points, message.point)
        self.progress[message.run] = BenchProgress(
            message.run, message.phase, message.progress, message.concurrency, message.detail, points
        )
        if message.phase == "failed":
            self.outcome = f"failed: {message.detail}" if message.detail else f"{message.run} failed"
        self.version += 1

    def done(self, message: BenchDone) -> None:
        """A run's result came."""
        self.results[message.run] = message.result
        self.outcome = f"{message.result.label or message.run} done"
        self.progress.pop(message.run, None)
        self.version += 1

    def forget_running(self, outcome: str) -> None:
        """A run ended without a result."""
        self.outcome = outcome
        self._given_up.update(self.progress)
        self.progress.clear()
        self.version += 1

    @property
    def running(self) -> BenchProgress | None:
        """The run in progress, the newest when there are several."""
        going = [p for p in self.progress.values() if p.phase not in ("done", "failed")]
        return going[-1] if going else None
