"""Thundering herd: requests move through the stages together instead of being spread over the slots."""

from __future__ import annotations

from engine.emulated.band import Band, ordered
from engine.emulated.counterfactual import evenly_split, with_graphs
from engine.emulated.curves import StageSample, fit_curve, generic_shape
from probes.diagnosis.case import PUBLISHED_EXPERTS, PUBLISHED_TOP_K, Case
from probes.diagnosis.verdict import Fix, Verdict, refuted_gain

FEW_WAVES = 0.6
"""Waves below this share of those that requests and slots allow are few."""
LOCK_STEP = 0.5
BURST, SPREAD = 0.5, 0.2
"""Burst indices from which on, and up to which, token times alone decide."""

FIX = Fix(
    herdscope="admission = capped, max_micro_batch = ceil(C / slots)",
    sglang='POST /set_internal_state {"server_args": {"pp_max_micro_batch_size": %d}} (new requests), or the flag '
    "--pp-max-micro-batch-size",
    vllm="cap the decodes of a batch at ceil(max_num_seqs / pp): lower --max-num-seqs, or run replicas",
)


def judge(case: Case) -> Verdict:
    """Holds where waves are few, H is beyond chance, and the stages are not seen to overlap."""
    metrics, evidence = case.metrics, case.evidence
    fix = Fix(FIX.herdscope, FIX.sglang % _cap(case), FIX.vllm)
    if evidence.parallelism == "ep":
        return _refuted(case, ["one stage: there is nothing to stagger"], fix)
    if evidence.stages == 1 and evidence.parallelism == "pp":
        return _refuted(case, ["one stage: there is nothing to stagger"], fix)
    if metrics.B is not None and not case.cohorts:
        return _by_burst(case, metrics.B, fix)
    if metrics.waves is None or not case.cohorts:
        missing = metrics.why.get("waves", "sizes of the micro-batches")
        return Verdict(
            hypothesis="herd", verdict="unknown", gain=None, fix=fix, missing=f"sizes of the micro-batches ({missing})"
        )
    possible = case.reachable
    sizes = _sizes(case)
    if possible < 2:
        what = f"one request at a time ({sizes})" if case.requests < 2 else f"one slot holds all requests ({sizes})"
        return _refuted(case, [f"{what}: there is no other slot to spread them to"], fix)
    line = metrics.random_line or 1.0
    few = metrics.waves < FEW_WAVES * possible
    beyond_chance = metrics.H is not None and line < metrics.H
    overlapping = metrics.L is not None and metrics.L <= LOCK_STEP
    supports: list[str] = []
    contradicts: list[str] = []
    text = f"{metrics.waves:.1f} waves of the {possible} that {case.requests} requests in "
    text += f"{evidence.slots_allowed} slots allow ({sizes})"
    (supports if few else contradicts).append(text)
    if metrics.H is not None:
        chance = f"H = {metrics.H:.2f}, random placement stays below {line:.2f} 19 times in 20"
        (supports if beyond_chance else contradicts).append(chance)
    if metrics.L is not None:
        (contradicts if overlapping else supports).append(_lock_text(case))
    holds = few and beyond_chance and not (overlapping and metrics.waves >= 0.5 * possible)
    if holds and evidence.slots_assumed:
        return Verdict(
            hypothesis="herd",
            verdict="unknown",
            gain=None,
            supports=supports,
            missing="how many micro-batches may be in flight: if no more than these waves, it is depth and not a herd",
            fix=fix,
        )
    single, after = _gain(case)
    if not holds:
        return Verdict(
            hypothesis="herd",
            verdict="refuted",
            gain=refuted_gain(None if not few else single),
            supports=supports,
            contradicts=contradicts,
            fix=fix,
        )
    if after is not None:
        supports.append(
            f"splitting now would gain nothing ({single.mid:.2f}x: each extra micro-batch is launched anew); with CUDA "
            f"graphs on it adds {after.low:.2g}-{after.high:.2g}x: turn them on first"
        )
    return Verdict(
        hypothesis="herd",
        verdict="holds",
        gain=single,
        supports=supports,
        contradicts=contradicts,
        fix=fix,
        knob="admission" if single.mid >= 1.0 else None,
        value="capped" if single.mid >= 1.0 else None,
    )


def _by_burst(case: Case, burst: float, fix: Fix) -> Verdict:
    """From client token times alone: tokens that come in one burst a cycle are of one herd."""
    text = f"burst B = {burst:.2f}: 0 is tokens spread over the cycle, 1 all at once"
    if burst >= BURST:
        gain = _gain_from_sizes((case.evidence.streams,), case.evidence.stages)
        return Verdict(hypothesis="herd", verdict="holds", gain=gain, supports=[text], fix=fix)
    if burst <= SPREAD:
        return _refuted(case, [text], fix)
    return Verdict(
        hypothesis="herd", verdict="unknown", gain=None, supports=[text], missing="slot sizes, or spans", fix=fix
    )


def _refuted(case: Case, contradicts: list[str], fix: Fix) -> Verdict:
    return Verdict(hypothesis="herd", verdict="refuted", gain=refuted_gain(None), contradicts=contradicts, fix=fix)


def _cap(case: Case) -> int:
    return max(1, -(-case.requests // case.evidence.slots_allowed))


def _sizes(case: Case) -> str:
    empty = case.evidence.slots_allowed - len(case.cohorts)
    shown = "+".join(map(str, case.cohorts[:8])) + ("+..." if len(case.cohorts) > 8 else "")
    return f"sizes {shown}{f', {empty} empty' if empty > 0 else ''}"


def _lock_text(case: Case) -> str:
    metrics = case.metrics
    text = f"lock-step L = {metrics.L:.2f}"
    if metrics.U is not None:
        text += f": a stage holds a micro-batch {metrics.U:.0%} of the time"
    if case.evidence.overlap is not None:
        text += f"; stages compute at the same time for {case.evidence.overlap:.3f} of the window"
    return text


def _gain(case: Case) -> tuple[Band, Band | None]:
    """(gain of the even split now, gain of it once graphs are on where it gains nothing now)."""
    measured = case.measured
    if measured is None:
        return _gain_from_sizes(case.cohorts, case.reachable), None
    assert case.replays is not None
    now = case.replays.gain(evenly_split(measured, case.reachable))
    if now.mid >= 1.02 or any(curve.launch_s == 0 for curve in measured.curves):
        return now, None
    launched = with_graphs(measured)
    return now, case.replays.gain(evenly_split(launched, case.reachable), launched)


def _gain_from_sizes(cohorts: tuple[int, ...], slots: int) -> Band:
    """Without stage times: the stage time's growth with the micro-batch, of a flat model up to a bare MoE one."""
    largest, share = max(cohorts), -(-sum(cohorts) // slots)
    curve = fit_curve(
        [StageSample(decode=largest, tau_s=1.0, graph=True)],
        generic_shape(PUBLISHED_EXPERTS, PUBLISHED_TOP_K, 24, False),
        24,
    )
    smaller = curve.at(share)
    most = 1.0 / smaller.low
    return ordered(1.0, most**0.5, most)
