"""Speed for a user against speed of a device: which points of the runs no other point beats in both."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sessions.compare.differences import load_name, name_of
from sessions.results import BenchResult


class ParetoPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One load of one run: tokens a second for each user and for each device (a GPU, or a CPU worker); `best` when no
    other point is at least as good in both and better in one."""

    run: str
    load: str
    tokens_per_s_per_user: float
    tokens_per_s_per_device: float
    joules_per_token: float | None
    best: bool


def pareto(results: Sequence[BenchResult]) -> list[ParetoPoint]:
    """Every point of every run."""
    places = [
        (
            point.tokens_per_s_per_stream,
            point.output_tokens_per_s / max(1, result.engine.pp, result.engine.ep),
        )
        for result in results
        for point in result.points
    ]
    points = [(result, point) for result in results for point in result.points]
    return [
        ParetoPoint(
            run=name_of(result),
            load=load_name(point),
            tokens_per_s_per_user=here[0],
            tokens_per_s_per_device=here[1],
            joules_per_token=point.energy_j_per_token,
            best=not any(_beats(there, here) for there in places),
        )
        for (result, point), here in zip(points, places, strict=True)
    ]


def _beats(there: tuple[float, float], here: tuple[float, float]) -> bool:
    return there != here and there[0] >= here[0] and there[1] >= here[1]
