"""The case that every hypothesis is judged on: evidence, herd metrics, and the measured pipeline to replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import msgspec

from engine.config import ConfigError
from engine.emulated.band import Band, around, exactly
from engine.emulated.counterfactual import Measured
from engine.emulated.curves import Shape, StageSample, fit_curve, generic_shape, shape_of
from engine.emulated.routing import distinct_experts
from probes.diagnosis.evidence import UNKNOWN_SLOT, Evidence, Parallelism, StageSpan
from probes.diagnosis.metrics import HerdMetrics, herd_metrics
from probes.diagnosis.replays import Replays
from probes.diagnosis.roofline_times import gpu_times
from probes.diagnosis.rounds import followed, samples, typical
from probes.diagnosis.steady import cycle_ns, first_stage, steady_spans

PUBLISHED_EXPERTS = 128
PUBLISHED_TOP_K = 8
"""Experts of a layer and those that a token takes, in the most common published shape."""
_KERNELS_PER_LAYER = 18
IDLE = 0.1
"""A first stage that idled for this share of a micro-batch's time before it was waiting for its slot's tokens."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One diagnosis in the making.

    measured is None when the stage times are not known; `why_not` says what is missing. cycle: seconds from a slot's
    step to its next one. replays: of `measured`, each run once.
    """

    evidence: Evidence
    metrics: HerdMetrics
    steady: list[StageSpan]
    cohorts: tuple[int, ...]
    measured: Measured | None
    why_not: str
    cycle: float | None
    replays: Replays | None = None

    @property
    def requests(self) -> int:
        """Decode requests that go round."""
        return sum(self.cohorts)

    @property
    def held_back(self) -> int:
        """Requests that wait because every slot is full; 0 where they wait for something else."""
        knobs = self.evidence.knobs
        full = knobs is not None and self.requests >= self.evidence.slots_allowed * knobs.max_micro_batch
        return self.evidence.waiting if full else 0

    @property
    def lap(self) -> float:
        """Seconds that the largest micro-batch takes once round, nothing in its way."""
        assert self.measured is not None
        stages = sum(curve.at(max(self.cohorts)).mid for curve in self.measured.curves)
        return stages + sum(self.measured.hop_s) + self.measured.feedback_s

    @property
    def reachable(self) -> int:
        """Micro-batches that could go round: as many as there are requests and slots."""
        return max(1, min(self.requests, self.evidence.slots_allowed))


def build_case(evidence: Evidence) -> Case:
    """Derive everything that the hypotheses share."""
    steady = steady_spans(evidence.spans)
    narrowed = msgspec.structs.replace(evidence, spans=steady) if steady else evidence
    metrics = herd_metrics(narrowed)
    cohorts = typical(samples(narrowed)) or _sizes_alone(steady)
    own = followed(steady, len(cohorts))
    cycle = cycle_ns(own)
    measured, why_not = _measure(evidence, own, cohorts)
    return Case(
        evidence=evidence,
        metrics=metrics,
        steady=steady,
        cohorts=cohorts,
        measured=measured,
        why_not=why_not,
        cycle=cycle / 1e9 if cycle else None,
        replays=Replays(measured) if measured is not None else None,
    )


def _sizes_alone(steady: Sequence[StageSpan]) -> tuple[int, ...]:
    """One micro-batch of the median size, when no round could be told."""
    sizes = sorted(span.decode for span in steady)
    return (sizes[len(sizes) // 2],) if sizes else ()


def _measure(evidence: Evidence, steady: Sequence[StageSpan], cohorts: tuple[int, ...]) -> tuple[Measured | None, str]:
    if not steady:
        return None, "no decode micro-batch was timed"
    if not cohorts:
        return None, "the sizes of the micro-batches are not known"
    stages = evidence.stages
    missing = [str(s) for s in range(stages) if not any(span.stage == s for span in steady)]
    if missing:
        return None, f"no spans of stage {', '.join(missing)}"
    launched = any(span.launch and not span.graph and span.compute is None for span in steady)
    expected = gpu_times(evidence) if launched else None

    def by_size(stage: int, spans: Sequence[StageSpan]) -> Callable[[int], Band] | None:
        if expected is None:
            return None
        shared = median(span.sent - span.end for span in spans) / 1e9 if evidence.parallelism == "ep" else 0.0
        return lambda size: expected(stage, size).map(lambda seconds: seconds + shared)

    curves = []
    for stage in range(stages):
        mine = _representative([span for span in steady if span.stage == stage])
        layers = _layers(evidence, mine)
        taken = [_sample(span, evidence.parallelism) for span in mine]
        curves.append(fit_curve(taken, _shape(evidence, mine, stage), layers, by_size(stage, mine)))
    hops = tuple(_hop(steady, stage) for stage in range(stages - 1))
    feedback = _feedback(steady, stages, evidence.parallelism)
    return (
        Measured(
            curves=tuple(curves),
            cohorts=cohorts,
            hop_s=hops,
            feedback_s=feedback,
            host_s=max(0.0, feedback - (median(hops) if hops else 0.0)),
        ),
        "",
    )


def _representative(spans: list[StageSpan]) -> list[StageSpan]:
    """Where several ranks share a stage: those of the rank whose own work takes longest."""
    ranks = {span.rank for span in spans}
    slowest = max(sorted(ranks), key=lambda r: median(s.end - s.start for s in spans if s.rank == r))
    return [span for span in spans if span.rank == slowest]


def _sample(span: StageSpan, parallelism: Parallelism) -> StageSample:
    """What a span tells about its stage. Gaps inside a replayed graph's step belong to it: no knob removes them. Where
    ranks share the stage it is held until their last collective is done."""
    held = max(1, (span.sent if parallelism == "ep" else span.end) - span.start)
    return StageSample(
        decode=span.decode,
        tau_s=held / 1e9,
        launch_s=span.launch / 1e9,
        busy_s=None if span.compute is None or span.graph else max(1, span.compute) / 1e9,
        graph=span.graph,
    )


def _layers(evidence: Evidence, spans: Sequence[StageSpan]) -> int:
    if evidence.model is not None:
        return max(1, evidence.model.layers // evidence.stages)
    kernels = [span.kernels for span in spans if span.kernels]
    return max(1, round(median(kernels) / _KERNELS_PER_LAYER)) if kernels else 1


def _shape(evidence: Evidence, spans: Sequence[StageSpan], stage: int) -> Shape:
    """How this stage's time grows with the micro-batch: from the model, or from its experts' share of the time."""
    model = evidence.model
    layers = _layers(evidence, spans)
    if model is not None:
        if not model.experts:
            return _flat()
        from engine.emulated.model_profile import load_model  # reads checkpoints, which traces never name

        try:
            return shape_of(load_model(model.name), *_bounds(evidence, stage))
        except ConfigError:
            last = stage == evidence.stages - 1
            return generic_shape(model.experts, model.experts_per_token, layers, last)
    timed = [(s.expert, s.end - s.start if s.graph else s.compute) for s in spans if s.expert is not None and s.compute]
    shares = [expert / held for expert, held in timed if held]
    if not shares:
        return generic_shape(PUBLISHED_EXPERTS, PUBLISHED_TOP_K, layers, stage == evidence.stages - 1)
    share = median(shares)
    if share < 0.02:
        return _flat()
    size = round(median(span.decode for span in spans))
    distinct = distinct_experts(PUBLISHED_EXPERTS, PUBLISHED_TOP_K, size, 0.0)
    rest = distinct * (1.0 - share) / share
    return Shape(experts=PUBLISHED_EXPERTS, top_k=PUBLISHED_TOP_K, rest=around(rest, 1.0), fixed_s=Band(0.0, 0.0, 0.0))


def _flat() -> Shape:
    """Without experts every micro-batch reads the same weights."""
    return Shape(experts=0, top_k=0, rest=exactly(1.0))


def _bounds(evidence: Evidence, stage: int) -> tuple[int, int]:
    """Layers [first, last) of a stage: as the engine says, or evenly."""
    if stage in evidence.layers:
        return evidence.layers[stage]
    assert evidence.model is not None
    whole = evidence.model.layers
    return whole * stage // evidence.stages, whole * (stage + 1) // evidence.stages


def _hop(spans: Sequence[StageSpan], stage: int) -> float:
    """Seconds from the end on `stage` to the start on the next, where the next one stood waiting; 0 if it never did."""
    ends = {span.step: span.end for span in spans if span.stage == stage}
    lags = [
        span.ready - ends[span.step]
        for span in spans
        if span.stage == stage + 1 and span.step in ends and span.wait < ends[span.step]
    ]
    return max(0.0, median(lags) / 1e9) if lags else 0.0


def _feedback(spans: Sequence[StageSpan], stages: int, parallelism: Parallelism) -> float:
    """Seconds from a slot's end on the last stage to its next start on the first, where the first stood waiting. Where
    ranks share the stage, its end is that of their last collective."""
    last: dict[int, int] = {}
    for span in spans:
        if span.stage == stages - 1:
            last[span.step] = max(last.get(span.step, 0), span.sent if parallelism == "ep" else span.end)
    previous: dict[int, int] = {}
    lags = []
    for span in first_stage(spans):
        if span.slot == UNKNOWN_SLOT:
            continue
        before = previous.get(span.slot)
        previous[span.slot] = span.step
        left = last.get(before) if before is not None else None
        idle = span.ready - span.wait
        if left is not None and (span.wait <= left or idle > IDLE * (span.end - span.start)):
            lags.append(span.start - left)
    return max(0.0, median(lags) / 1e9) if lags else 0.0
