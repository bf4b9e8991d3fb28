"""Compares benchmark runs with the first of them: one row a load and metric, tested over repetitions.

The unit is the repetition. Each row holds both medians with 95 % intervals, the ratio by Hodges and Lehmann's shift
of the logarithms, and the Mann-Whitney p, corrected by Holm over all rows of the comparison.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from sessions.compare.differences import Difference, differences, load_name, matching, name_of
from sessions.compare.holm import holm
from sessions.compare.intervals import median_interval
from sessions.compare.mann_whitney import UTest, shift, u_test
from sessions.compare.metrics import METRICS, Metric, samples_of
from sessions.compare.pareto import ParetoPoint, pareto
from sessions.compare.repetitions import detectable, fewest, needed
from sessions.results import BenchResult

ALPHA = 0.05
Verdict = Literal["better", "worse", "~"]


class WorkloadMismatch(ValueError):
    """The runs did not ask for the same work; the text is one line that names both."""


class Side(msgspec.Struct, frozen=True):
    """One run's value of a metric: the median over repetitions, its 95 % interval (None: under 6) and how many."""

    median: float
    low: float | None
    high: float | None
    repetitions: int


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One metric at one load, `other` against `base`.

    ratio: other / base with its interval (None: too few repetitions for one). superiority: the share of pairs in which
    the other's value is the larger. p: Mann-Whitney, two-sided, and p_holm corrected; None with one repetition a side.
    verdict: better, worse, or ~ where nothing is shown. needed: repetitions a side to show the difference seen
    (None: none would, or unknown). detectable: the smallest ratio that these repetitions would have shown.
    """

    load: str
    metric: str
    name: str
    unit: str
    base: Side
    other: Side
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    superiority: float | None
    p: float | None
    p_holm: float | None
    verdict: Verdict
    needed: int | None
    detectable: float | None


class PairComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One run against the base: their rows, what else differed, and what to know before believing it."""

    base: str
    other: str
    rows: list[Row]
    differences: list[Difference]
    warnings: list[str]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Every other run against the first. `tests` is how many rows the correction was over, `fewest` how many
    repetitions a side any verdict needs then."""

    alpha: float
    tests: int
    fewest: int
    pareto: list[ParetoPoint]
    pairs: list[PairComparison]


class _Cell(NamedTuple):
    """The repetitions of one metric at one load, of both runs."""

    load: str
    metric: Metric
    base: list[float]
    other: list[float]

    @property
    def testable(self) -> bool:
        return min(len(self.base), len(self.other)) > 1


def compare_runs(results: Sequence[BenchResult], alpha: float = ALPHA, force: bool = False) -> Comparison:
    """Compare each run with the first. Raise WorkloadMismatch for different workloads unless `force`, ValueError for
    fewer than two runs or without a load in common."""
    if len(results) < 2:
        raise ValueError("a comparison needs at least two results")
    base = results[0]
    warnings = [_warnings(base, other, force) for other in results[1:]]
    cells = [_cells(base, other) for other in results[1:]]
    tests = [u_test(cell.base, cell.other) for each in cells for cell in each if cell.testable]
    corrected = iter(zip(tests, holm([test.p for test in tests]), strict=True))
    per_test = alpha / max(1, len(tests))
    return Comparison(
        alpha=alpha,
        tests=len(tests),
        fewest=fewest(per_test),
        pareto=pareto(results),
        pairs=[
            PairComparison(
                base=name_of(base),
                other=name_of(other),
                rows=[_row(cell, next(corrected) if cell.testable else None, alpha, per_test) for cell in each],
                differences=differences(base, other),
                warnings=said,
            )
            for other, each, said in zip(results[1:], cells, warnings, strict=True)
        ],
    )


def _cells(base: BenchResult, other: BenchResult) -> list[_Cell]:
    cells: list[_Cell] = []
    for point in base.points:
        twin = matching(other, point)
        if twin is None:
            continue
        for metric in METRICS:
            first, second = samples_of(point, metric), samples_of(twin, metric)
            if first and second:
                cells.append(_Cell(load_name(point), metric, first, second))
    if not cells:
        raise ValueError(f"{name_of(base)} and {name_of(other)} have no load in common")
    return cells


def _row(cell: _Cell, test: tuple[UTest, float] | None, alpha: float, per_test: float) -> Row:
    positive = min(*cell.base, *cell.other) > 0
    logs = [[math.log(value) for value in side] for side in (cell.base, cell.other)] if positive else [[], []]
    moved = shift(logs[0], logs[1], alpha) if positive else None
    verdict = _verdict(test, cell.metric, alpha)
    return Row(
        load=cell.load,
        metric=cell.metric.key,
        name=cell.metric.name,
        unit=cell.metric.unit,
        base=_side(cell.base),
        other=_side(cell.other),
        ratio=math.exp(moved.estimate) if moved else None,
        ratio_low=math.exp(moved.low) if moved and moved.low is not None else None,
        ratio_high=math.exp(moved.high) if moved and moved.high is not None else None,
        superiority=test[0].superiority if test else None,
        p=test[0].p if test else None,
        p_holm=test[1] if test else None,
        verdict=verdict,
        needed=needed(logs[0], logs[1], per_test) if verdict == "~" else None,
        detectable=detectable(logs[0], logs[1], per_test),
    )


def _verdict(test: tuple[UTest, float] | None, metric: Metric, alpha: float) -> Verdict:
    if test is None or test[1] > alpha:
        return "~"
    return "better" if (test[0].superiority > 0.5) == metric.more_is_better else "worse"


def _side(values: Sequence[float]) -> Side:
    found = median_interval(values)
    return Side(found.value, found.low, found.high, found.samples)


def _warnings(base: BenchResult, other: BenchResult, force: bool) -> list[str]:
    warnings: list[str] = []
    if base.workload.key != other.workload.key:
        text = f"different workloads: {base.workload.key!r} and {other.workload.key!r}"
        if not force:
            raise WorkloadMismatch(text)
        warnings.append(text)
    if base.emulated or other.emulated:
        warnings.append("emulated figures are computed, not measured: repetitions show the model's spread only")
    if base.tool != other.tool:
        warnings += [
            f"{name_of(result)}: {result.tool} defines {metric} as {definition}"
            for result in (base, other)
            for metric, definition in result.definitions.items()
        ]
    for result in (base, other):
        throttled = sorted({reason for point in result.points for gpu in point.gpus for reason in gpu.throttled})
        if throttled:
            warnings.append(f"{name_of(result)}: GPUs were held back ({', '.join(throttled)})")
        lost = sum(p.requests.refused + p.requests.failed for p in result.points)
        if lost:
            warnings.append(f"{name_of(result)}: {lost} requests were refused or failed")
    return warnings
