"""Uneven split: the slots are in use, but one carries far more requests than its share, and the round waits for it."""

from __future__ import annotations

from engine.emulated.counterfactual import evenly_split
from probes.diagnosis.case import Case
from probes.diagnosis.hypotheses.herd import FEW_WAVES
from probes.diagnosis.verdict import Fix, Verdict, refuted_gain

MUCH = 1.3
"""Largest micro-batch over an even share."""

FIX = Fix(
    herdscope="admission = capped (rebalance where it is that already)",
    sglang='POST /set_internal_state {"server_args": {"pp_max_micro_batch_size": ceil(C / slots)}} (new requests)',
    vllm="cap the decodes of a batch at ceil(max_num_seqs / pp)",
)


def judge(case: Case) -> Verdict:
    """Holds where the waves are about as many as the slots, but the largest is 1.3 times an even share or more."""
    metrics = case.metrics
    if case.evidence.parallelism == "ep" or (case.evidence.stages == 1 and case.evidence.parallelism == "pp"):
        return _refuted("one stage: the split does not matter")
    if metrics.waves is None or not case.cohorts:
        return Verdict(
            hypothesis="uneven_split",
            verdict="unknown",
            gain=None,
            missing=f"sizes of the micro-batches ({metrics.why.get('waves', '')})",
            fix=FIX,
        )
    slots = case.reachable
    if slots < 2:
        return _refuted("one micro-batch: nothing to split evenly")
    share = -(-case.requests // slots)
    ratio = max(case.cohorts) / share
    text = f"the largest of {len(case.cohorts)} micro-batches has {max(case.cohorts)} requests; {share} is even"
    if ratio <= MUCH:
        return _refuted(text)
    if metrics.waves < FEW_WAVES * slots:
        return _refuted(f"{metrics.waves:.1f} waves in {slots} slots: a matter of few waves, not of their sizes")
    possible = None
    if case.measured is not None and case.replays is not None:
        possible = case.replays.gain(evenly_split(case.measured, slots))
    knobs = case.evidence.knobs
    return Verdict(
        hypothesis="uneven_split",
        verdict="holds",
        gain=possible,
        supports=[f"{text}: {ratio:.1f} times", f"{metrics.waves:.1f} waves in {slots} slots"],
        fix=FIX,
        knob="admission",
        value="capped" if knobs is None or knobs.admission == "greedy" else "rebalance",
    )


def _refuted(text: str) -> Verdict:
    return Verdict(hypothesis="uneven_split", verdict="refuted", gain=refuted_gain(None), contradicts=[text], fix=FIX)
