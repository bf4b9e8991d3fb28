"""The herd metrics of a source, each a number or the reason why there is none (Pipeline theory, docs/theory.md)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

import msgspec

from probes.diagnosis.evidence import UNKNOWN_SLOT, Evidence, SlotSample, StageSpan
from probes.diagnosis.rounds import samples
from sessions import herd
from sessions.herd import Metric

UNEQUAL = 1.5
"""Slowest stage over the mean beyond which lock-step says nothing."""


class HerdMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """H, N_eff (waves), L, U and B; `why` gives the reason for each that is None, by its name. concurrency: mean live
    decode requests. random_line: H that random placement exceeds one time in twenty. limits: what to mind."""

    H: float | None
    waves: float | None
    L: float | None
    U: float | None
    B: float | None
    concurrency: float | None
    random_line: float | None
    why: dict[str, str] = {}
    limits: list[str] = []


def herd_metrics(evidence: Evidence) -> HerdMetrics:
    """All herd metrics that this source can give."""
    if evidence.parallelism == "ep" or evidence.stages < 2:
        reason = "one stage: nothing to stagger" if evidence.parallelism != "unknown" else "stages are not known"
        return HerdMetrics(
            H=None,
            waves=None,
            L=None,
            U=None,
            B=None,
            concurrency=_concurrency(samples(evidence)),
            random_line=None,
            why=dict.fromkeys(("H", "waves", "L", "U", "B"), reason),
        )
    found = samples(evidence)
    concurrency = _concurrency(found)
    bins = evidence.stages if evidence.slot_count != 1 else 1
    unseen = _unseen(evidence)
    index = _mean([herd.herd_index(sample.sizes, bins) for sample in found], unseen)
    waves = _mean([herd.waves(sample.sizes) for sample in found], unseen)
    lock, used = _activity(evidence, found)
    burst = _burst(evidence)
    if concurrency is not None and concurrency < 2:
        index = Metric(None, f"{concurrency:.2g} decode requests: two are needed")
    line = herd.random_line(round(concurrency)) if concurrency else Metric(None, "no decode step was seen")
    values = {"H": index, "waves": waves, "L": lock, "U": used, "B": burst}
    return HerdMetrics(
        **{name: metric.value for name, metric in values.items()},
        concurrency=concurrency,
        random_line=line.value,
        why={name: metric.why for name, metric in values.items() if metric.value is None},
        limits=_limits(evidence, concurrency),
    )


def _limits(evidence: Evidence, concurrency: float | None) -> list[str]:
    if concurrency is not None and 2 <= round(concurrency) < evidence.stages:
        return [f"{concurrency:.2g} requests on {evidence.stages} stages: at most so many stages can be busy at once"]
    return []


def _unseen(evidence: Evidence) -> str:
    if any(span.slot == UNKNOWN_SLOT for span in evidence.spans):
        return "the first or last stage was not recorded: which micro-batches go round together cannot be told"
    return "no decode step was seen"


def holding(spans: Sequence[StageSpan], stages: int) -> list[list[tuple[int, int]]]:
    """For every stage, the intervals in which it held a micro-batch."""
    held: list[list[tuple[int, int]]] = [[] for _ in range(stages)]
    for span in spans:
        held[span.stage].append((span.start, span.end))
    return held


def _concurrency(found: Sequence[SlotSample]) -> float | None:
    return fmean(sum(sample.sizes) for sample in found) if found else None


def _mean(metrics: Sequence[Metric], empty: str) -> Metric:
    values = [metric.value for metric in metrics if metric.value is not None]
    if values:
        return Metric(fmean(values))
    return Metric(None, next((metric.why for metric in metrics if metric.why), empty))


def _activity(evidence: Evidence, found: Sequence[SlotSample]) -> tuple[Metric, Metric]:
    stages = evidence.stages
    seen = {span.stage for span in evidence.spans}
    if len(seen) < stages:
        missing = f"spans of {len(seen)} of {stages} stages" if seen else "no spans"
        why = f"{missing}: those of every stage are needed"
        return Metric(None, why), Metric(None, why)
    if any(span.prefill for span in evidence.spans) and not any(not span.prefill for span in evidence.spans):
        return Metric(None, "only prefill was seen"), Metric(None, "only prefill was seen")
    spread = _spread(evidence)
    if spread > UNEQUAL:
        why = f"stages are unequal (the slowest takes {spread:.1f} times the mean): L is defined for equal ones"
        return Metric(None, why), _utilisation(evidence)
    start, end = common_window(evidence.spans, stages)
    when = herd.activity(holding(evidence.spans, stages), start, end)
    if when is None:
        return Metric(None, "no stage held a micro-batch"), Metric(None, "no stage held a micro-batch")
    live = round(fmean(min(sum(s.sizes), stages) for s in found)) if found else stages
    return herd.lock_step(when, live, stages), herd.utilisation(when, stages)


def _utilisation(evidence: Evidence) -> Metric:
    start, end = common_window(evidence.spans, evidence.stages)
    when = herd.activity(holding(evidence.spans, evidence.stages), start, end)
    return herd.utilisation(when, evidence.stages) if when is not None else Metric(None, "no micro-batch was timed")


def _spread(evidence: Evidence) -> float:
    """The slowest stage's median GPU time over the mean of all stages; of its time held, where that is not known."""
    times = []
    for stage in range(evidence.stages):
        mine = [span for span in evidence.spans if span.stage == stage]
        times.append(median(s.end - s.start if s.compute is None else s.compute for s in mine))
    mean = sum(times) / len(times)
    return max(times) / mean if mean > 0 else 1.0


def common_window(spans: Sequence[StageSpan], stages: int) -> tuple[int, int]:
    """The stretch that the spans of every stage cover."""
    starts = [min(s.start for s in spans if s.stage == stage) for stage in range(stages)]
    ends = [max(s.end for s in spans if s.stage == stage) for stage in range(stages)]
    return (max(starts), min(ends)) if min(ends) > max(starts) else (min(starts), max(ends))


ROUNDS_OF_PAUSES = 4
"""Pauses make the cycle look longer than it is, and so hide shorter pauses until they are cut."""


def _burst(evidence: Evidence) -> Metric:
    if not evidence.token_times:
        return Metric(None, "no client token times")
    if evidence.streams < 2:
        return Metric(None, f"{evidence.streams} streams: two are needed")
    times: list[float] = sorted(evidence.token_times)
    cycle = 0.0
    for _ in range(ROUNDS_OF_PAUSES):
        cycle = (times[-1] - times[0]) * evidence.streams / len(times)
        times = herd.without_pauses(times, cycle)
    return herd.burst(times, cycle, evidence.stages, evidence.streams)
