"""Runs an experiment against a target: block by block, until every effect is decided or the blocks are used up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from sessions.bench.combine import combine, with_scaling
from sessions.bench.environment import engine_summary, machine_summary, versions
from sessions.bench.runner import measure_point, new_run_id
from sessions.bench.sample import Sample
from sessions.bench.target import Target, TargetLost
from sessions.compare.ab.analysis import Block, Effect, effects
from sessions.compare.ab.design import Cell, DesignError, Factor, cell_name, cells, check, contrasts, order, setting
from sessions.compare.ab.looks import look_schedule
from sessions.compare.ab.result import AbResult, MetricEffects, Run
from sessions.compare.metrics import METRICS, Metric, samples_of
from sessions.knobs import Knobs
from sessions.load.workload import LoadPoint, Workload
from sessions.messages import GpuFrame
from sessions.results import BenchResult

COOL_TIMEOUT_S = 300.0
KNOB_STATE_S = 10.0
POLL_NS = 200_000_000
UNDECIDED = ("~",)


class AbPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. metric: whose effects decide when to stop. most: blocks at most (None: as the looks need). margin:
    a ratio within 1 +- margin is negligible. cool_to: wait before each run until every GPU is at most so hot."""

    factors: list[Factor]
    workload: Workload
    point: LoadPoint
    metric: Metric = METRICS[0]
    alpha: float = 0.05
    margin: float = 0.02
    most: int | None = None
    seed: int = 0
    cool_to: float | None = None


class AbProgress(NamedTuple):
    """Where an experiment is: runs done, runs at most, and words."""

    done: int
    most: int
    words: str


def run_ab(
    target: Target,
    plan: AbPlan,
    report: Callable[[AbProgress], None] = lambda progress: None,
    stop: threading.Event | None = None,
) -> AbResult:
    """Run the experiment and put the knobs back as they were. Raise DesignError for one that cannot be run here,
    TargetLost when the engine fails, Stopped when `stop` was set."""
    check(plan.factors)
    looks = look_schedule(len(contrasts(plan.factors)), plan.alpha, plan.most)
    before = target.knobs.knobs
    try:
        return _Experiment(target, plan, looks, report, stop).run()
    finally:
        for factor in plan.factors:
            target.turn(factor.knob, getattr(before, factor.knob))


class _Experiment:
    def __init__(
        self,
        target: Target,
        plan: AbPlan,
        looks: list[int],
        report: Callable[[AbProgress], None],
        stop: threading.Event | None,
    ) -> None:
        self._target = target
        self._plan = plan
        self._looks = looks
        self._report = report
        self._stop = stop
        self._cells = cells(plan.factors)
        self._samples: dict[Cell, list[Sample]] = {cell: [] for cell in self._cells}
        self._knobs: dict[Cell, Knobs] = {}
        self._runs: list[Run] = []
        self._id = new_run_id()
        self._started_ns = target.clock.now_ns()

    def run(self) -> AbResult:
        started = datetime.now(UTC).isoformat(timespec="seconds")
        self._warm_up()
        level = self._plan.alpha / len(self._looks)
        decided: frozenset[str] = frozenset()
        for block in range(self._looks[-1]):
            for cell in order(self._plan.factors, block, self._plan.seed):
                self._measure(block, cell)
            if block + 1 in self._looks:
                seen = self._effects(self._plan.metric, level, decided)
                decided |= {effect.name for effect in seen if effect.p_holm <= level}
                if all(effect.verdict not in UNDECIDED for effect in seen):
                    return self._result(started, level, decided, "every effect is decided")
        return self._result(started, level, decided, f"after the last look, {self._looks[-1]} blocks")

    def _warm_up(self) -> None:
        """One short unmeasured run of every cell, which also shows that every knob can be turned so."""
        short = msgspec.structs.replace(self._plan.workload, requests=max(1, self._plan.point.concurrency or 1))
        for number, cell in enumerate(self._cells):
            self._tell(0, f"warm-up: {cell_name(self._plan.factors, cell)}")
            self._turn(cell)
            measure_point(self._target, short, self._plan.point, f"{self._id}-w{number}", self._stop)
            self._knobs[cell] = self._target.knobs.knobs

    def _measure(self, block: int, cell: Cell) -> None:
        self._tell(len(self._runs), f"block {block + 1}: {cell_name(self._plan.factors, cell)}")
        self._turn(cell)
        self._cool()
        at_s = (self._target.clock.now_ns() - self._started_ns) / 1e9
        prefix = f"{self._id}-{len(self._runs)}"
        sample = measure_point(self._target, self._plan.workload, self._plan.point, prefix, self._stop)
        self._samples[cell].append(sample)
        point = combine(self._plan.point, [sample])
        metrics = {metric.key: values[0] for metric in METRICS if (values := samples_of(point, metric))}
        if metrics.get(self._plan.metric.key, 0.0) <= 0:
            raise DesignError(f"{cell_name(self._plan.factors, cell)} has no {self._plan.metric.name}: {point.why}")
        self._runs.append(Run(block, self._cells.index(cell), at_s, metrics))

    def _turn(self, cell: Cell) -> None:
        for knob, value in setting(self._plan.factors, cell).items():
            if getattr(self._target.knobs.knobs, knob) == value:
                continue
            reply = self._target.turn(knob, value)
            if not reply.ok:
                raise DesignError(f"{knob} cannot be turned to {value}: {reply.reason}")
            deadline_ns = self._target.clock.now_ns() + round(KNOB_STATE_S * 1e9)
            while getattr(self._target.knobs.knobs, knob) != value:
                if self._target.clock.now_ns() > deadline_ns:
                    raise TargetLost(f"the engine turned {knob} to {value} but did not tell its new state")
                self._target.advance(self._target.clock.now_ns() + POLL_NS)

    def _cool(self) -> None:
        if self._plan.cool_to is None:
            return
        clock = self._target.clock
        deadline_ns = clock.now_ns() + round(COOL_TIMEOUT_S * 1e9)
        hottest: dict[tuple[int, str], float] = {}
        while clock.now_ns() < deadline_ns:
            for message in self._target.advance(clock.now_ns() + POLL_NS):
                if isinstance(message, GpuFrame) and message.temperature_celsius is not None:
                    hottest[message.index, message.uuid] = message.temperature_celsius
            if hottest and max(hottest.values()) <= self._plan.cool_to:
                return

    def _effects(self, metric: Metric, level: float, decided: frozenset[str]) -> list[Effect]:
        return effects(
            self._plan.factors, self._blocks(metric), level, self._plan.margin, metric.more_is_better, decided
        )

    def _blocks(self, metric: Metric) -> list[Block]:
        """The metric's value in every cell of each complete block; [] where a run lacks it."""
        blocks: list[Block] = [{} for _ in range(self._runs[-1].block + 1)]
        for run in self._runs:
            if run.metrics.get(metric.key, 0.0) <= 0:
                return []
            blocks[run.block][self._cells[run.cell]] = run.metrics[metric.key]
        return blocks

    def _result(self, started: str, level: float, decided: frozenset[str], ended: str) -> AbResult:
        primary = self._plan.metric
        shown = [primary, *(metric for metric in METRICS if metric.key != primary.key and self._blocks(metric))]
        digests = {sample.outputs_digest for samples in self._samples.values() for sample in samples}
        return AbResult(
            run=self._id,
            started_utc=started,
            seed=self._plan.seed,
            alpha=self._plan.alpha,
            level=level,
            margin=self._plan.margin,
            factors=self._plan.factors,
            looks=self._looks,
            blocks=self._runs[-1].block + 1,
            ended=ended,
            cells=[self._cell_result(cell, started) for cell in self._cells],
            runs=self._runs,
            metrics=[
                MetricEffects(
                    metric.key,
                    metric.name,
                    metric.unit,
                    self._effects(metric, level, decided if metric.key == primary.key else frozenset()),
                )
                for metric in shown
            ],
            same_tokens=len(digests) == 1,
            warnings=self._warnings(),
        )

    def _cell_result(self, cell: Cell, started: str) -> BenchResult:
        state = self._target.engine
        point = combine(self._plan.point, self._samples[cell])
        return BenchResult(
            run=f"{self._id}-{self._cells.index(cell)}",
            started_utc=started,
            points=with_scaling([point]),
            knobs=self._knobs[cell],
            engine=engine_summary(state),
            workload=self._plan.workload.summary([self._plan.point]),
            machine=machine_summary(state, sorted({gpu.name for gpu in point.gpus})),
            versions=versions(),
            emulated=state.emulated,
            label=cell_name(self._plan.factors, cell),
        )

    def _warnings(self) -> list[str]:
        found: list[str] = []
        if self._target.engine.emulated:
            found.append("EMULATED: computed, not measured; repetitions agree, so p-values say nothing about a machine")
        for cell in self._cells:
            point = combine(self._plan.point, self._samples[cell])
            name = cell_name(self._plan.factors, cell)
            throttled = sorted({reason for gpu in point.gpus for reason in gpu.throttled})
            if throttled:
                found.append(f"{name}: GPUs were held back ({', '.join(throttled)})")
            if "requests" in point.why:
                found.append(f"{name}: {point.why['requests']}")
        return found

    def _tell(self, done: int, words: str) -> None:
        self._report(AbProgress(done, self._looks[-1] * len(self._cells), words))
