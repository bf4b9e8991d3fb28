"""The whole diagnosis of one piece of evidence."""

from __future__ import annotations

import msgspec

from engine.emulated.band import Band
from engine.emulated.counterfactual import Measured, evenly_split, occupancy
from probes.diagnosis.case import Case, build_case
from probes.diagnosis.evidence import Evidence
from probes.diagnosis.hypotheses import JUDGES
from probes.diagnosis.metrics import HerdMetrics
from probes.diagnosis.mix import mixed_gain, mixed_rate, prefill_in_the_mix, rate_beside_prefill
from probes.diagnosis.power import expected_watts
from probes.diagnosis.replays import best_even_split, deepest_useful
from probes.diagnosis.verdict import Verdict, ranked

_LEAST_ERROR = 0.05
_MOST_ERROR = 0.25
"""Ends of the relative error that the replay's own distance from the measured throughput adds to every gain."""


class Bubble(msgspec.Struct, frozen=True, kw_only=True):
    """Share of the stages' time without a micro-batch, and what it comes from: requests spread unevenly over the slots
    (it would go with an even split), or too few micro-batches for this many stages (it would stay)."""

    total: float
    herd: float
    too_few: float


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. expected: tokens a second that the same stages would give the same requests, evenly split at the
    best depth, prefill included; replayed: what the replay of the measured times gives now, which tells how far it can
    be trusted; expected_watts: what each GPU (uuid) would draw in that case, where that is known."""

    evidence: Evidence
    herd: HerdMetrics
    verdicts: list[Verdict]
    cohorts: tuple[int, ...]
    cycle_s: float | None
    measured_tokens_per_s: float | None
    expected_tokens_per_s: Band | None
    replayed_tokens_per_s: Band | None
    bubble: Bubble | None
    expected_watts: dict[str, float] = {}

    @property
    def causes(self) -> list[Verdict]:
        """The hypotheses that hold, by gain."""
        return [verdict for verdict in self.verdicts if verdict.verdict == "holds"]


def diagnose(evidence: Evidence) -> Diagnosis:
    """Judge every hypothesis."""
    case = build_case(evidence)
    measured = case.measured
    rate = evidence.tokens_per_s
    if rate is None and case.cycle:
        rate = case.requests / case.cycle
    replayed = case.replays.rate(measured) if measured is not None and case.replays is not None else None
    best = _best(measured) if measured is not None else None
    expected = case.replays.rate(best) if best is not None and case.replays is not None else None
    verdicts = [_unsure(judge(case), evidence) for judge in JUDGES]
    if prefill_in_the_mix(evidence):
        verdicts = [_diluted(verdict) for verdict in verdicts]
        replayed = mixed_rate(replayed, evidence) if replayed is not None else None
        expected = mixed_rate(expected, evidence) if expected is not None else None
    else:
        replayed = rate_beside_prefill(replayed, evidence) if replayed is not None else None
        error = abs(replayed.mid / rate - 1.0) if replayed is not None and rate else 0.0
        error = max(_LEAST_ERROR, min(_MOST_ERROR, error))
        verdicts = [_with_error(verdict, error) for verdict in verdicts]
        expected = _widened(rate_beside_prefill(expected, evidence), error) if expected is not None else None
    return Diagnosis(
        evidence=evidence,
        herd=case.metrics,
        verdicts=ranked(verdicts),
        cohorts=case.cohorts,
        cycle_s=case.cycle,
        measured_tokens_per_s=rate,
        expected_tokens_per_s=expected,
        replayed_tokens_per_s=replayed,
        bubble=_bubble(case),
        expected_watts=expected_watts(evidence, measured, best) if measured is not None and best else {},
    )


def _best(measured: Measured) -> Measured:
    return best_even_split(measured, 1, deepest_useful(measured))


def _unsure(verdict: Verdict, evidence: Evidence) -> Verdict:
    """No verdict rests on a recording that was cut off: what it lacks looks like idling."""
    if not evidence.cut_ranks:
        return verdict
    ranks = ", ".join(map(str, evidence.cut_ranks))
    return msgspec.structs.replace(
        verdict, verdict="unknown", gain=None, missing=f"the whole trace of rank {ranks}, which was cut off"
    )


def _diluted(verdict: Verdict) -> Verdict:
    """Take prefill into account in the gain of what holds."""
    if verdict.gain is None or verdict.verdict != "holds":
        return verdict
    note = "prefill is in the mix: the gain is that of decode at most"
    return msgspec.structs.replace(verdict, gain=mixed_gain(verdict.gain), supports=[*verdict.supports, note])


def _with_error(verdict: Verdict, error: float) -> Verdict:
    """Add the replay's own error to the band of what holds."""
    if verdict.gain is None or verdict.verdict != "holds":
        return verdict
    return msgspec.structs.replace(verdict, gain=_widened(verdict.gain, error))


def _widened(band: Band, error: float) -> Band:
    return Band(band.low / (1.0 + error), band.mid, band.high * (1.0 + error))


def _bubble(case: Case) -> Bubble | None:
    """Split the bubble by replaying the same times with the even split."""
    if case.measured is None or case.evidence.stages < 2:
        return None
    now = _idle(occupancy(case.measured))
    even = _idle(occupancy(evenly_split(case.measured, case.reachable)))
    stays = min(now, even)
    return Bubble(total=now, herd=now - stays, too_few=stays)


def _idle(busy: tuple[float, ...]) -> float:
    return 1.0 - sum(busy) / len(busy)
