"""Framework / host: the stages stand still while the host schedules, samples or passes messages."""

from __future__ import annotations

import msgspec

from engine.emulated.counterfactual import Measured
from probes.diagnosis.case import Case
from probes.diagnosis.verdict import Fix, Verdict, refuted_gain

MUCH = 0.15
"""Share of a micro-batch's way round in which the host keeps the stages waiting..."""
MUCH_PROFILED = 0.30
"""...and where a profiler was recording, which lengthens just that."""
WORTH = 1.10

FIX = Fix(
    herdscope="run_ahead = 1 (submit the next step before its tokens are seen), fewer log lines, a free core a rank",
    sglang="--pp-async-batch-depth 1 (outputs exchanged behind the next launch), a free core a rank",
    vllm="--async-scheduling, --stream-interval, a free core a rank",
)


def judge(case: Case) -> Verdict:
    """Holds where host time is a large part of a lap and would be gained if it were hidden."""
    measured, evidence = case.measured, case.evidence
    if measured is None or case.replays is None:
        return _without_steps(case)
    feedback, lap = host_s(measured), case.lap
    share = feedback / lap
    faster = msgspec.structs.replace(measured, feedback_s=measured.feedback_s - feedback, host_s=0.0)
    possible = case.replays.gain(faster)
    lines = [f"the host holds a micro-batch {feedback * 1e3:.2f} ms of its {lap * 1e3:.1f} ms way round ({share:.0%})"]
    if evidence.profiler is not None:
        lines.append("recorded with a profiler, which lengthens the host's part")
    if any(evidence.host_by_stage.values()):
        shown = ", ".join(f"{s * 1e3:.2f}" for _, s in sorted(evidence.host_by_stage.items())[:8])
        lines.append(f"GPUs idle {shown} ms a micro-batch, by stage, while their hosts schedule")
    if evidence.driver_s_per_step:
        lines.append(f"the driver works {evidence.driver_s_per_step * 1e3:.2f} ms a micro-batch")
    if is_much(case) and possible.mid >= WORTH:
        return Verdict(hypothesis="host", verdict="holds", gain=possible, supports=lines, fix=FIX)
    return Verdict(hypothesis="host", verdict="refuted", gain=refuted_gain(possible), contradicts=lines, fix=FIX)


def host_s(measured: Measured) -> float:
    """Seconds of a lap in which the host holds a micro-batch."""
    return min(measured.feedback_s, measured.host_s)


def is_much(case: Case) -> bool:
    """Whether the host's part of a lap is large."""
    much = MUCH_PROFILED if case.evidence.profiler is not None else MUCH
    return case.measured is not None and host_s(case.measured) >= much * case.lap


def _without_steps(case: Case) -> Verdict:
    ranks = case.evidence.ranks
    shares = [rank.decomposition.host for rank in ranks]
    lines = (
        [f"the GPUs idle for the host's scheduling {min(shares):.0%}-{max(shares):.0%} of the time"] if shares else []
    )
    return Verdict(
        hypothesis="host",
        verdict="unknown",
        gain=None,
        supports=lines,
        missing=f"what the host did between micro-batches ({case.why_not})",
        fix=FIX,
    )
