"""The max-plus recursion of a pipeline: when each stage starts and ends each micro-batch, in order of submission.

    start[s] = max(arrival at s, free[s]);  end[s] = start[s] + tau[s]
    free[s] = end[s];  arrival at s + 1 = end[s] + hop[s]

(Pipeline theory, docs/theory.md.) Exact for stages that serve in order and links that never queue. Any unit of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Passage(NamedTuple):
    """One micro-batch on one stage: when the stage was free, the input there, computing started and ended."""

    free: float
    arrival: float
    start: float
    end: float


class Pipeline:
    """The instant from which each stage is free, moved on by every micro-batch pushed through."""

    def __init__(self, stages: int, now: float = 0.0) -> None:
        self.free = [now] * stages

    def push(self, ready: float, taus: Sequence[float], hops: Sequence[float]) -> list[Passage]:
        """Run a micro-batch that is ready for stage 0 at `ready`; `hops[s]` is the way from stage s to s + 1
        (0 where it is not given)."""
        passages = []
        arrival, last = ready, len(hops)
        for stage, free in enumerate(self.free):
            start = arrival if arrival > free else free
            end = start + taus[stage]
            passages.append(Passage(free, arrival, start, end))
            arrival = end + hops[stage] if stage < last else end
        self.free = [passage.end for passage in passages]
        return passages


class Cohort(NamedTuple):
    """One of the micro-batches that go round: `requests` in it, and its time on each stage."""

    requests: int
    taus: tuple[float, ...]


class Steady(NamedTuple):
    """A pipeline in steady decode: time of a round of all micro-batches, requests (or tokens) a unit of time, and each
    stage's busy share."""

    cycle: float
    rate: float
    occupancy: tuple[float, ...]


def steady_state(cohorts: Sequence[Cohort], hops: Sequence[float], feedback: float, depth: int | None = None) -> Steady:
    """Let the cohorts go round until the pipeline has settled, and measure the rounds after that.

    A cohort may start again `feedback` after it left the last stage; at most `depth` are in flight (default: all). They
    take turns in order. Returns rates in requests per unit of time: each round gives each request one token.
    """
    stages = len(cohorts[0].taus)
    depth = min(depth or len(cohorts), len(cohorts))
    pipeline = Pipeline(stages)
    back = [0.0] * len(cohorts)
    ends: list[float] = []
    settle, measure = 4 * stages + 16, 4 * stages + 48
    marks = []
    for _ in range(settle + measure):
        for index, cohort in enumerate(cohorts):
            slot_free = ends[-depth] + feedback if len(ends) >= depth else 0.0
            end = pipeline.push(max(back[index], slot_free), cohort.taus, hops)[-1].end
            back[index] = end + feedback
            ends.append(end)
        marks.append(ends[-1])
    span = marks[-1] - marks[settle - 1]
    cycle = span / measure
    busy = [sum(c.taus[s] for c in cohorts) / cycle for s in range(stages)]
    return Steady(cycle, sum(c.requests for c in cohorts) / cycle, tuple(min(1.0, b) for b in busy))
