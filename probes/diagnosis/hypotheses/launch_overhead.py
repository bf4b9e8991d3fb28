"""Launch overhead: the GPU waits for the host to launch kernels one by one, because CUDA graphs are off."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from engine.emulated.counterfactual import with_graphs
from probes.diagnosis.case import Case
from probes.diagnosis.evidence import Parallelism, StageSpan
from probes.diagnosis.verdict import Fix, Verdict, refuted_gain

BOUND = 0.5
"""A stage is launch-bound when it idles for the host for more than half of a micro-batch's time..."""
LAUNCHING = 0.9
"""...or, where the GPU's own time is not known, when launching takes this share of it."""
WORTH = 1.05

FIX = Fix(
    herdscope="cuda_graphs = on",
    sglang="start without --disable-cuda-graph (and --cuda-graph-max-bs of at least the slot's size)",
    vllm="start without --enforce-eager",
)


def judge(case: Case) -> Verdict:
    """Holds where eager decode steps leave the GPU waiting for launches, and replaying graphs would gain."""
    graphs = _graphs(case)
    if graphs:
        return Verdict(
            hypothesis="launch_overhead",
            verdict="refuted",
            gain=refuted_gain(None),
            contradicts=[_graph_text(case)],
            fix=FIX,
        )
    if not case.steady:
        text = "decode steps run without CUDA graphs" if graphs is False else ""
        return Verdict(
            hypothesis="launch_overhead",
            verdict="unknown",
            gain=None,
            supports=[text] if text else [],
            missing="time of decode steps on the GPU and on the host (spans or traces)",
            fix=FIX,
        )
    if all(span.launch == 0 for span in case.steady):
        return Verdict(
            hypothesis="launch_overhead",
            verdict="refuted",
            gain=refuted_gain(None),
            contradicts=["no time is spent launching kernels"],
            fix=FIX,
        )
    supports: list[str] = []
    contradicts: list[str] = []
    bound = False
    for stage in range(case.evidence.stages):
        mine = [span for span in case.steady if span.stage == stage]
        mine = [span for span in mine if case.cohorts and span.decode == max(case.cohorts)] or mine
        if mine:
            share, text, stage_bound = _stage(stage, mine, case.evidence.parallelism)
            bound |= stage_bound
            if stage_bound or share > BOUND:
                supports.append(text)
            else:
                contradicts.append(text)
    kernels = [s.kernels / s.launches for s in case.steady if s.kernels and s.launches]
    if kernels and bound:
        supports.append(f"{median(kernels):.1f} kernels a launch: no graph is replayed")
    possible = case.replays.gain(with_graphs(case.measured)) if case.measured is not None and case.replays else None
    worth = possible is None or possible.mid >= WORTH
    if bound and worth:
        return Verdict(
            hypothesis="launch_overhead",
            verdict="holds",
            gain=possible,
            supports=supports,
            contradicts=contradicts,
            fix=FIX,
            knob="cuda_graphs",
            value=True,
        )
    if possible is not None:
        contradicts.append(f"without any launching these stage times give {possible.mid:.2f}x")
    return Verdict(
        hypothesis="launch_overhead",
        verdict="refuted",
        gain=refuted_gain(possible),
        supports=supports,
        contradicts=contradicts,
        fix=FIX,
    )


def _graphs(case: Case) -> bool | None:
    """Whether decode steps replay graphs, by the steps themselves where they were seen."""
    if case.steady:
        return sum(span.graph for span in case.steady) * 2 > len(case.steady)
    return case.evidence.graphs


def _graph_text(case: Case) -> str:
    kernels = [s.kernels / s.launches for s in case.steady if s.graph and s.kernels and s.launches]
    if kernels:
        return f"decode steps replay CUDA graphs: {median(kernels):.0f} kernels a launch"
    return "decode steps replay CUDA graphs"


def _stage(stage: int, spans: Sequence[StageSpan], parallelism: Parallelism) -> tuple[float, str, bool]:
    """(share of a micro-batch's time that launching explains, that in words, whether the stage is launch-bound)."""
    held = median((span.sent if parallelism == "ep" else span.end) - span.start for span in spans)
    launch = median(span.launch for span in spans)
    computed = [span.compute for span in spans if span.compute is not None]
    if computed:
        idle = 1.0 - median(computed) / held
        text = f"stage {stage}: the GPU idles for {idle:.0%} of a micro-batch's {held / 1e6:.1f} ms"
        if launch > held:
            text += f" (launching it takes the host {launch / 1e6:.1f} ms, hidden behind waiting)"
        return idle, text, idle > BOUND
    share = launch / held
    return share, f"stage {stage}: launching takes {share:.0%} of {held / 1e6:.1f} ms", share >= LAUNCHING
