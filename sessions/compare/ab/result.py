"""The result of an experiment, as `herdscope ab --json` prints it."""

from __future__ import annotations

import msgspec

from sessions.compare.ab.analysis import Effect
from sessions.compare.ab.design import Factor
from sessions.results import BenchResult

AB_FORMAT = 1


class Run(msgspec.Struct, frozen=True):
    """One measurement: its block, its cell's index, seconds since the experiment began, and its metrics."""

    block: int
    cell: int
    at_s: float
    metrics: dict[str, float]


class MetricEffects(msgspec.Struct, frozen=True):
    """The effects on one metric; only the first metric of a result decided when to stop."""

    metric: str
    name: str
    unit: str
    effects: list[Effect]


class AbResult(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment. `cells` hold one benchmark result a combination, with a sample a block; `looks` are the blocks
    after which it looked, `level` the share of alpha that each could spend; `ended` says why it stopped."""

    format: int = AB_FORMAT
    run: str
    started_utc: str
    seed: int
    alpha: float
    level: float
    margin: float
    factors: list[Factor]
    looks: list[int]
    blocks: int
    ended: str
    cells: list[BenchResult]
    runs: list[Run]
    metrics: list[MetricEffects]
    same_tokens: bool | None
    warnings: list[str] = []
