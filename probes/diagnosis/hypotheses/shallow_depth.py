"""Depth too small: fewer micro-batches may be in flight than it takes to keep every stage busy."""

from __future__ import annotations

import math

from engine.emulated.counterfactual import at_best_depth, gain, p_eff
from probes.diagnosis.case import Case
from probes.diagnosis.hypotheses.herd import FEW_WAVES
from probes.diagnosis.verdict import Fix, Verdict, refuted_gain

WORTH = 1.05


def judge(case: Case) -> Verdict:
    """Holds where all slots are in use, evenly, yet fewer than p_eff, and more would gain."""
    evidence, metrics = case.evidence, case.metrics
    if evidence.parallelism == "ep" or (evidence.stages == 1 and evidence.parallelism == "pp"):
        return _refuted("one stage: depth hides nothing", fix(1))
    if case.measured is None or metrics.waves is None:
        return Verdict(
            hypothesis="shallow_depth",
            verdict="unknown",
            gain=None,
            missing=f"stage times and micro-batches in flight ({case.why_not or metrics.why.get('waves', '')})",
            fix=fix(evidence.stages),
        )
    needed = p_eff(case.measured)
    slots = evidence.slots_allowed
    wanted = fix(max(slots, math.ceil(needed)))
    if case.requests <= slots:
        return _refuted(f"{case.requests} requests cannot fill more than {slots} slots", wanted)
    if case.reachable > 1 and metrics.waves < FEW_WAVES * case.reachable:
        return _refuted(f"{slots} slots are allowed, {metrics.waves:.1f} waves use them: not depth but spread", wanted)
    if slots >= needed:
        return _refuted(f"{slots} slots are allowed, {needed:.1f} keep every stage busy", wanted)
    deeper = at_best_depth(case.measured)
    possible = gain(case.measured, deeper)
    text = f"{slots} micro-batches may be in flight, {needed:.1f} keep every stage busy"
    if possible.mid < WORTH:
        return Verdict(
            hypothesis="shallow_depth",
            verdict="refuted",
            gain=refuted_gain(possible),
            supports=[text],
            contradicts=[f"more would gain nothing ({possible.mid:.2f}x): smaller micro-batches re-read the weights"],
            fix=wanted,
        )
    depth = len(deeper.cohorts)
    return Verdict(
        hypothesis="shallow_depth",
        verdict="holds",
        gain=possible,
        supports=[text, f"best at {depth} in flight"],
        fix=fix(depth),
        knob="async_depth",
        value=depth,
    )


def fix(depth: int) -> Fix:
    """The ways to let `depth` micro-batches be in flight."""
    return Fix(
        herdscope=f"async_depth = {depth}",
        sglang=f"restart with --pp-async-batch-depth so that pp_size + depth = {depth} (published use is 1)",
        vllm="none: vLLM keeps pp_size batches in flight; take fewer, fatter stages (tensor parallel inside them)",
    )


def _refuted(text: str, wanted: Fix) -> Verdict:
    return Verdict(
        hypothesis="shallow_depth", verdict="refuted", gain=refuted_gain(None), contradicts=[text], fix=wanted
    )
