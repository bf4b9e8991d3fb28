"""Stage imbalance: one stage takes longer than the others for the same micro-batch, and all wait for it."""

from __future__ import annotations

from engine.emulated.band import Band
from engine.emulated.counterfactual import with_balanced_stages
from probes.diagnosis.case import Case
from probes.diagnosis.verdict import Fix, Verdict, refuted_gain

SPREAD = 0.10
"""Slowest stage over the mean, less one: what is worth a look where it costs throughput..."""
WIDE_SPREAD = 0.25
"""...and where it costs nothing yet, because few micro-batches are in flight."""
WORTH = 1.02
NO_COST = "it costs nothing yet: with few micro-batches in flight only the sum of the stages counts"
_FEW_LAYERS = 6
"""Fewest layers of a stage in practice, where they are not told."""

FIX = Fix(
    herdscope="start with layers split by measured cost (the head weighs on the last stage)",
    sglang="set SGLANG_PP_LAYER_PARTITION=... with fewer layers on the slow stage",
    vllm="set VLLM_PP_LAYER_PARTITION=... with fewer layers on the slow stage",
)


def judge(case: Case) -> Verdict:
    """Holds where stages differ by more than a tenth in their GPU time for the same micro-batch."""
    if case.evidence.parallelism == "ep" or (case.evidence.stages == 1 and case.evidence.parallelism == "pp"):
        return Verdict(
            hypothesis="stage_imbalance",
            verdict="refuted",
            gain=refuted_gain(None),
            contradicts=["one stage"],
            fix=FIX,
        )
    if case.measured is None or case.replays is None:
        return Verdict(
            hypothesis="stage_imbalance",
            verdict="unknown",
            gain=None,
            missing=f"time of every stage for the same micro-batch ({case.why_not})",
            fix=FIX,
        )
    size = max(set(case.cohorts), key=case.cohorts.count)
    times = [curve.at(size, graphs=True).mid for curve in case.measured.curves]
    mean = sum(times) / len(times)
    slowest = max(range(len(times)), key=lambda stage: times[stage])
    spread = times[slowest] / mean - 1.0
    possible = _whole_layers(case, case.replays.gain(with_balanced_stages(case.measured)))
    text = (
        f"stage {slowest} computes {times[slowest] * 1e3:.2f} ms for {size} requests, the mean is {mean * 1e3:.2f} ms "
        f"({spread:+.0%})"
    )
    idle_cost = possible.mid < WORTH
    if spread <= SPREAD or (idle_cost and spread <= WIDE_SPREAD):
        return Verdict(
            hypothesis="stage_imbalance",
            verdict="refuted",
            gain=refuted_gain(possible),
            contradicts=[text, *([NO_COST] if spread > SPREAD else [])],
            fix=FIX,
        )
    if idle_cost and _launch_bound(case):
        return Verdict(
            hypothesis="stage_imbalance",
            verdict="unknown",
            gain=None,
            missing="GPU time of every stage: launching hides it (turn CUDA graphs on first)",
            fix=FIX,
        )
    supports = [text]
    if idle_cost:
        supports.append(NO_COST)
    return Verdict(hypothesis="stage_imbalance", verdict="holds", gain=possible, supports=supports, fix=FIX)


def _whole_layers(case: Case, possible: Band) -> Band:
    """Layers are whole: the best split may leave the slowest stage half a layer above the mean."""
    assert case.measured is not None
    layers = max(_FEW_LAYERS, sum(curve.layers for curve in case.measured.curves) / len(case.measured.curves))
    return Band(min(possible.mid, possible.low / (1.0 + 0.5 / layers)), possible.mid, possible.high)


def _launch_bound(case: Case) -> bool:
    """Whether some stage's own time is hidden behind launching and not known."""
    assert case.measured is not None
    return any(band.high > 1.5 * band.low for curve in case.measured.curves for band in curve.gpu_s)
