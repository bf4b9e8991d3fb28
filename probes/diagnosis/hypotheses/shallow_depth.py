"""Depth too small: fewer micro-batches may be in flight than it takes to keep every stage busy."""

from __future__ import annotations

import math

import msgspec

from engine.emulated.band import Band
from engine.emulated.counterfactual import Measured, even_sizes, evenly_split, with_graphs
from probes.diagnosis.case import Case
from probes.diagnosis.hypotheses.herd import FEW_WAVES
from probes.diagnosis.hypotheses.host import is_much as host_is_much
from probes.diagnosis.hypotheses.interconnect import is_much as wires_are_much
from probes.diagnosis.replays import best_even_split, deepest_useful, effective_depth, fastest
from probes.diagnosis.verdict import Fix, Verdict, refuted_gain

WORTH = 1.10


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
    assert case.replays is not None
    slots = evidence.slots_allowed
    size = -(-case.requests // max(1, min(case.requests, slots)))
    needed = effective_depth(case.measured, size)
    wanted = fix(max(slots, math.ceil(needed)))
    if case.requests + case.held_back <= slots:
        return _refuted(f"{case.requests} requests cannot fill more than {slots} slots", wanted)
    if evidence.slots_assumed and metrics.waves < FEW_WAVES * case.reachable:
        return Verdict(
            hypothesis="shallow_depth",
            verdict="unknown",
            gain=None,
            missing=f"how many micro-batches may be in flight ({metrics.waves:.1f} waves are)",
            fix=wanted,
        )
    if case.reachable > 1 and metrics.waves < FEW_WAVES * case.reachable:
        return _refuted(f"{slots} slots are allowed, {metrics.waves:.1f} waves use them: not depth but spread", wanted)
    if slots >= needed:
        return _refuted(f"{slots} slots are allowed, {needed:.1f} keep every stage busy", wanted)
    stages_alone = msgspec.structs.replace(case.measured, hop_s=(), feedback_s=0.0)
    if slots >= effective_depth(stages_alone, size) and (wires_are_much(case) or host_is_much(case)):
        cause = "transfers" if wires_are_much(case) else "the host"
        return _refuted(f"{slots} slots are enough for the stages; {cause} make {needed:.1f} of it", wanted)
    deeper, possible = _deeper(case, case.measured, slots)
    text = f"{slots} micro-batches may be in flight, {needed:.1f} keep every stage busy"
    supports = [text]
    if possible.mid < WORTH and any(curve.launch_s > 0 for curve in case.measured.curves):
        launched, after = _deeper(case, with_graphs(case.measured), slots)
        if after.mid >= WORTH:
            supports.append(
                f"more would gain nothing now ({possible.mid:.2f}x: each is launched anew); with CUDA graphs on they "
                f"add {after.low:.2g}-{after.high:.2g}x: turn them on first"
            )
            deeper = msgspec.structs.replace(launched, graphs=False)
            possible = case.replays.gain(deeper, evenly_split(case.measured, slots))
    if possible.mid < WORTH and len(supports) == 1:
        return Verdict(
            hypothesis="shallow_depth",
            verdict="refuted",
            gain=refuted_gain(possible),
            supports=[text],
            contradicts=[f"more would gain nothing ({possible.mid:.2f}x): smaller micro-batches re-read the weights"],
            fix=wanted,
        )
    depth = max(slots, len(deeper.cohorts))
    if case.held_back:
        supports.append(f"all slots are full, and {case.held_back} requests wait for one")
    elif evidence.knobs is not None and evidence.knobs.admission == "greedy":
        supports.append("greedy admission leaves running requests where they are: turn admission to capped as well")
        possible = Band(min(1.0, possible.low), possible.mid, possible.high)
    return Verdict(
        hypothesis="shallow_depth",
        verdict="holds",
        gain=possible,
        supports=[*supports, f"best at {depth} in flight"],
        fix=fix(depth),
        knob="async_depth" if possible.mid >= 1.0 else None,
        value=depth if possible.mid >= 1.0 else None,
    )


def _deeper(case: Case, measured: Measured, slots: int) -> tuple[Measured, Band]:
    """(the best even split into at least `slots`, its gain over the even split into `slots`)."""
    assert case.replays is not None
    deepest = deepest_useful(measured)
    if case.held_back:
        best = fastest(_admitting(case, measured, count) for count in range(slots, max(slots, deepest) + 1))
    else:
        best = best_even_split(measured, slots, deepest)
    return best, case.replays.gain(best, evenly_split(measured, slots))


def _admitting(case: Case, measured: Measured, slots: int) -> Measured:
    """Up to `slots` micro-batches, where each further one takes in requests that wait because all are full: greedy
    admission fills one after the other, the others spread them."""
    knobs = case.evidence.knobs
    assert knobs is not None
    most = knobs.max_micro_batch
    running = min(case.requests + case.held_back, slots * most)
    if knobs.admission != "greedy":
        return msgspec.structs.replace(measured, cohorts=even_sizes(running, slots))
    full, rest = divmod(running, most)
    return msgspec.structs.replace(measured, cohorts=(most,) * full + ((rest,) if rest else ()))


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
