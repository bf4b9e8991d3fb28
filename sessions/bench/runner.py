"""Runs a benchmark: every load point, every repetition, against one target."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from sessions.bench.combine import combine, with_scaling
from sessions.bench.environment import engine_summary, machine_summary, versions
from sessions.bench.meter import Meter
from sessions.bench.sample import Sample, sample
from sessions.bench.target import Target, TargetLost
from sessions.load.generators import Generator
from sessions.load.workload import LoadPoint, Workload
from sessions.messages import BenchStage, QueueFrame
from sessions.results import BenchPoint, BenchResult

STALL_S = 120.0
POLL_NS = 100_000_000
TAIL_NS = 500_000_000


class Stopped(Exception):
    """The benchmark was asked to stop before its end; its requests were cancelled."""


class Progress(NamedTuple):
    """Where a benchmark is; `fraction` is of the whole run, `point` is set when one is done."""

    run: str
    phase: BenchStage
    fraction: float
    concurrency: int | None = None
    detail: str = ""
    point: BenchPoint | None = None


Report = Callable[[Progress], None]


def quiet(progress: Progress) -> None:
    """A report that goes nowhere."""


def new_run_id() -> str:
    """A name for a run, unique over hosts."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"


def run_bench(
    target: Target,
    workload: Workload,
    points: Sequence[LoadPoint],
    repeat: int = 1,
    report: Report = quiet,
    stop: threading.Event | None = None,
    label: str = "",
) -> BenchResult:
    """Measure each point `repeat` times, the sweep as a whole repeated so that a drift does not fall on one point.

    Raise TargetLost when the engine fails, Stopped when `stop` was set, ValueError for a workload that cannot be built.
    """
    run = new_run_id()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    knobs = target.knobs.knobs
    samples: list[list[Sample]] = [[] for _ in points]
    done: list[BenchPoint] = []
    gpus: set[str] = set()
    report(Progress(run, "start", 0.0, detail=f"{len(points)} points, {repeat} times"))
    try:
        for repetition in range(repeat):
            for index, point in enumerate(points):
                share = (repetition * len(points) + index, repeat * len(points))
                prefix = f"{run}-{index}-{repetition}"
                meter = _run_point(target, workload, point, prefix, _within(report, run, point, share), stop)
                gpus |= {frame.name for frame in meter.gpus}
                samples[index].append(sample(meter, target.engine.stages))
                if repetition == repeat - 1:
                    done.append(combine(point, samples[index]))
                    report(Progress(run, "point", (share[0] + 1) / share[1], point.concurrency, str(point), done[-1]))
    except (TargetLost, Stopped, ValueError) as error:
        report(Progress(run, "failed", 1.0, detail=str(error)))
        raise
    result = BenchResult(
        run=run,
        started_utc=started,
        points=with_scaling(done),
        knobs=knobs,
        engine=engine_summary(target.engine),
        workload=workload.summary(list(points)),
        machine=machine_summary(target.engine, sorted(gpus)),
        versions=versions(),
        emulated=target.engine.emulated,
        label=label,
    )
    report(Progress(run, "done", 1.0))
    return result


def measure_point(
    target: Target, workload: Workload, point: LoadPoint, prefix: str, stop: threading.Event | None = None
) -> Sample:
    """One repetition of one point; `prefix` begins the ids of its requests. Raises as `run_bench` does."""
    meter = _run_point(target, workload, point, prefix, lambda phase, fraction: None, stop)
    return sample(meter, target.engine.stages)


def _within(report: Report, run: str, point: LoadPoint, share: tuple[int, int]) -> Callable[[BenchStage, float], None]:
    def tell(phase: BenchStage, fraction: float) -> None:
        report(Progress(run, phase, (share[0] + fraction) / share[1], point.concurrency, str(point)))

    return tell


def _run_point(
    target: Target,
    workload: Workload,
    point: LoadPoint,
    prefix: str,
    tell: Callable[[BenchStage, float], None],
    stop: threading.Event | None,
) -> Meter:
    model = target.engine.model
    if model is None:
        raise TargetLost("the engine does not say which model it serves")
    generator = workload.bounded(point, prefix, model.vocab, target.clock.now_ns())
    meter = Meter(workload.warmup_at(point))
    total = workload.warmup_at(point) + workload.requests_at(point)
    try:
        while _step(target, generator, meter, stop):
            ended = len(meter.requests) - meter.live
            tell("warmup" if meter.open_ns is None else "measure", min(1.0, ended / total))
        _read_tail(target, meter)
    except BaseException:
        with contextlib.suppress(TargetLost):
            target.cancel([name for name, track in meter.requests.items() if track.ended is None])
        raise
    return meter


def _step(target: Target, generator: Generator, meter: Meter, stop: threading.Event | None) -> bool:
    """Submit what is due and take what comes; False when every request has ended and no more will come."""
    if stop is not None and stop.is_set():
        raise Stopped("the benchmark was stopped")
    _submit_due(target, generator, meter)
    next_due_ns = generator.next_due_ns()
    if meter.live == 0 and next_due_ns is None:
        return False
    now_ns = target.clock.now_ns()
    for message in target.advance(min(now_ns + POLL_NS, next_due_ns or now_ns + POLL_NS)):
        for request in meter.take(message):
            generator.finished(request, message.t_ns)
    silent_ns = target.clock.now_ns() - meter.last_sign_ns
    if meter.live and silent_ns > STALL_S * 1e9:
        raise TargetLost(f"no token came for {STALL_S:.0f} s with {meter.live} requests live")
    return True


def _submit_due(target: Target, generator: Generator, meter: Meter) -> None:
    now_ns = target.clock.now_ns()
    batch = generator.due(now_ns)
    if batch:
        meter.submitted(batch)
        reason = target.submit([due.request for due in batch])
        if reason:
            refused = [due.request.id for due in batch]
            meter.refused(refused, reason, now_ns)
            for request in refused:
                generator.finished(request, now_ns)
    if generator.draining:
        meter.draining(now_ns)


def _read_tail(target: Target, meter: Meter) -> None:
    """Wait for the frame that tells of the window's end: frames come at about 10 Hz."""
    end_ns = target.clock.now_ns()
    while target.clock.now_ns() < end_ns + TAIL_NS:
        messages = target.advance(end_ns + TAIL_NS)
        for message in messages:
            meter.take(message)
        if any(isinstance(message, QueueFrame) and message.t_ns >= end_ns for message in messages):
            return
