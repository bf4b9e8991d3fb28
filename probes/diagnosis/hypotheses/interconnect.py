"""Interconnect: moving data between ranks takes the time, not waiting for a peer that has nothing to send yet."""

from __future__ import annotations

from statistics import fmean, median

import msgspec

from engine.emulated.band import Band
from engine.emulated.counterfactual import with_links
from probes.diagnosis.case import Case
from probes.diagnosis.evidence import Communication
from probes.diagnosis.verdict import Fix, Verdict, refuted_gain

MUCH_OF_A_LAP = 0.20
"""Transfers take this share of a micro-batch's way round a pipeline."""
MUCH_OF_A_RANK = 0.40
"""Transfers take this share of a rank's time, outside a pipeline."""
WORTH = 1.10

FIX = Fix(
    herdscope="parallelism = pp (a hop a stage instead of two all-reduces a layer), or faster links between the ranks",
    sglang="prefer --pp-size over --tp-size across slow links; NCCL_DEBUG=INFO shows the path taken",
    vllm="prefer --pipeline-parallel-size over --tensor-parallel-size across slow links; NCCL_DEBUG=INFO shows it",
)


def judge(case: Case) -> Verdict:
    """Holds where transfers (the shortest participant's time) fill a large part, and instant links would gain."""
    evidence = case.evidence
    lines = _waiting_lines(evidence.communication) if evidence.communication is not None else []
    if evidence.parallelism == "pp" and evidence.stages == 1:
        return _refuted(["one stage on one GPU: nothing crosses a link"])
    if evidence.communication is not None and evidence.communication.waiting is None:
        return _unknown("the other ranks' traces: without them transfer and waiting look alike")
    if evidence.parallelism == "pp":
        return _pipeline(case, lines)
    wires = [rank.decomposition.wire for rank in evidence.ranks]
    if not wires:
        return _unknown("traces of every rank, or spans of every stage")
    wire = fmean(wires)
    text = f"transfer takes {wire:.0%} of the ranks' time"
    if wire < MUCH_OF_A_RANK:
        return _refuted([text, *lines])
    floor = max(1.0 - wire, _launching(case))
    possible = 1.0 / floor if floor > 0.0 else None
    if possible is not None and possible < WORTH:
        return _refuted(
            [text, "launching kernel by kernel takes as long: without transfers nothing would gain", *lines]
        )
    return Verdict(
        hypothesis="interconnect",
        verdict="holds",
        gain=Band(1.0, possible, possible) if possible else None,
        supports=[text],
        contradicts=lines,
        fix=FIX,
    )


def _launching(case: Case) -> float:
    """Share of a step in which the host launches kernels one by one: no step is shorter than that."""
    eager = [span.launch for span in case.steady if not span.graph]
    return min(1.0, median(eager) / 1e9 / case.cycle) if eager and case.cycle else 0.0


def _pipeline(case: Case, lines: list[str]) -> Verdict:
    measured = case.measured
    if measured is None or case.replays is None:
        if case.evidence.communication is not None and case.evidence.ranks:
            wire = max(rank.decomposition.wire for rank in case.evidence.ranks)
            if wire < 0.05:
                return _refuted([f"transfer takes at most {wire:.1%} of any rank's time", *lines])
        return _unknown(f"stage times and transfers ({case.why_not})")
    wires, lap = hop_wires(case), case.lap
    share = sum(wires) / lap
    instant = [max(0.0, hop - wire) for hop, wire in zip(measured.hop_s, wires, strict=True)]
    back = max(0.0, measured.feedback_s - fmean(wires)) if wires else measured.feedback_s
    faster = msgspec.structs.replace(with_links(measured, instant), feedback_s=back)
    possible = case.replays.gain(faster)
    text = f"transfers take {sum(wires) * 1e3:.2f} ms of a micro-batch's {lap * 1e3:.1f} ms way round ({share:.1%})"
    if share >= MUCH_OF_A_LAP and possible.mid >= WORTH:
        return Verdict(
            hypothesis="interconnect",
            verdict="holds",
            gain=possible,
            supports=[text, *_speed(case)],
            contradicts=lines,
            fix=FIX,
        )
    hidden = [f"instant links would give {possible.mid:.2f}x"] if share >= MUCH_OF_A_LAP else []
    return Verdict(
        hypothesis="interconnect",
        verdict="refuted",
        gain=refuted_gain(possible),
        contradicts=[text, *hidden, *_speed(case), *lines],
        fix=FIX,
    )


def is_much(case: Case) -> bool:
    """Whether transfers are a large part of a lap."""
    return case.measured is not None and sum(hop_wires(case)) >= MUCH_OF_A_LAP * case.lap


def hop_wires(case: Case) -> list[float]:
    """Seconds of transfer from each stage to the next: matched kernels where there are any, else the whole hop."""
    if case.measured is None:
        return []
    found = case.evidence.communication
    if found is None:
        return list(case.measured.hop_s)
    return [found.hop_wire.get(stage, hop) for stage, hop in enumerate(case.measured.hop_s)]


def _speed(case: Case) -> list[str]:
    found = case.evidence.communication
    if found is not None and found.bytes_per_operation and found.wire_per_operation:
        size, time = found.bytes_per_operation, found.wire_per_operation
        return [f"{size / 1024:.0f} KiB cross in {time * 1e6:.0f} us ({size / time / 1e9:.1f} GB/s)"]
    model = case.evidence.model
    if model is not None and case.cohorts:
        size = max(case.cohorts) * model.hidden * 2
        return [f"a hop carries about {size / 1024:.0f} KiB"]
    return []


def _waiting_lines(found: Communication) -> list[str]:
    if found.waiting is None:
        return []
    lines = [f"{found.waiting:.1%} of communication kernel time is waiting, not transfer"]
    for rank, (op, seconds, waiting) in sorted(found.waiting_by_rank.items())[:4]:
        lines.append(f"rank {rank}: {waiting:.1%} of its {seconds * 1e3:.0f} ms in communication (mostly {op}) waits")
    return lines


def _refuted(lines: list[str]) -> Verdict:
    return Verdict(hypothesis="interconnect", verdict="refuted", gain=refuted_gain(None), contradicts=lines, fix=FIX)


def _unknown(missing: str) -> Verdict:
    return Verdict(hypothesis="interconnect", verdict="unknown", gain=None, missing=missing, fix=FIX)
