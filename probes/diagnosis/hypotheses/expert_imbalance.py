"""Expert imbalance: under expert parallelism one rank holds more of the busy experts, and every layer waits for it."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from engine.emulated.counterfactual import shortened
from probes.diagnosis.case import Case
from probes.diagnosis.verdict import Fix, Verdict, refuted_gain

SPREAD = 0.10
"""Slowest rank's own time over the mean, less one."""
ALWAYS = 0.5
"""One rank is last to join more than half of the collectives."""

FIX = Fix(
    herdscope="parallelism = pp, or place the busy experts on different ranks",
    sglang="--enable-eplb (with --ep-num-redundant-experts)",
    vllm="--enable-eplb",
)


def judge(case: Case) -> Verdict:
    """Holds where the same rank is always last and its experts take longer."""
    evidence = case.evidence
    if evidence.parallelism == "pp":
        return _refuted("no expert parallelism: a layer's experts are all on one rank")
    if evidence.parallelism != "ep":
        return Verdict(
            hypothesis="expert_imbalance",
            verdict="unknown",
            gain=None,
            missing="ranks of one expert-parallel group, with their experts' kernels or spans",
            fix=FIX,
        )
    if evidence.missing_ranks:
        return Verdict(
            hypothesis="expert_imbalance",
            verdict="unknown",
            gain=None,
            missing="the traces of every rank",
            fix=FIX,
        )
    return _from_collectives(case) if evidence.communication is not None else _from_spans(case)


def _from_collectives(case: Case) -> Verdict:
    found = case.evidence.communication
    assert found is not None
    if not found.last or not any(found.expert.values()):
        return Verdict(
            hypothesis="expert_imbalance",
            verdict="unknown",
            gain=None,
            missing="collectives that every rank took part in, and experts' kernels between them",
            fix=FIX,
        )
    rank = max(found.last, key=lambda r: found.last[r])
    mean = sum(found.expert.values()) / len(found.expert)
    spread = found.expert[rank] / mean - 1.0
    last = f"rank {rank} is the last to join {found.last[rank]:.0%} of the collectives"
    longer = f"its experts take {spread:+.0%} of the mean time"
    chance = 1.0 / len(found.last)
    if found.last[rank] <= max(ALWAYS, 1.5 * chance) or spread <= SPREAD:
        return _refuted(f"{last}; {longer}")
    return _holds(case, [last, longer], _saved(case, rank))


def _from_spans(case: Case) -> Verdict:
    by_rank: dict[int, list[int]] = defaultdict(list)
    for span in case.steady:
        by_rank[span.rank].append(span.end - span.start)
    if len(by_rank) < 2:
        return Verdict(
            hypothesis="expert_imbalance",
            verdict="unknown",
            gain=None,
            missing="spans of every rank",
            fix=FIX,
        )
    own = {rank: median(values) for rank, values in by_rank.items()}
    mean = sum(own.values()) / len(own)
    rank = max(own, key=lambda r: own[r])
    spread = own[rank] / mean - 1.0
    text = f"rank {rank} works {own[rank] / 1e6:.2f} ms a micro-batch, the mean is {mean / 1e6:.2f} ms ({spread:+.0%})"
    if spread <= SPREAD:
        return _refuted(text)
    held = median(span.sent - span.start for span in case.steady)
    return _holds(case, [text, "the other ranks wait for it in every layer"], (own[rank] - mean) / held)


def _saved(case: Case, slowest: int) -> float:
    """Share of a step that goes into the slowest rank's experts beyond the mean rank's."""
    by_rank: dict[int, list[int]] = defaultdict(list)
    for span in case.steady:
        if span.expert is not None:
            by_rank[span.rank].append(span.expert)
    if slowest not in by_rank:
        return 0.0
    own = {rank: median(values) for rank, values in by_rank.items()}
    held = median(span.end - span.start for span in case.steady if span.rank == slowest)
    return (own[slowest] - sum(own.values()) / len(own)) / max(1, held)


def _holds(case: Case, supports: list[str], saved: float) -> Verdict:
    """`saved`: share of a micro-batch's time that an even placement saves."""
    possible = None
    if case.measured is not None and case.replays is not None:
        seconds = [curve.at(case.cohorts[0]).mid * saved for curve in case.measured.curves]
        possible = case.replays.gain(shortened(case.measured, seconds))
    return Verdict(hypothesis="expert_imbalance", verdict="holds", gain=possible, supports=supports, fix=FIX)


def _refuted(text: str) -> Verdict:
    return Verdict(
        hypothesis="expert_imbalance", verdict="refuted", gain=refuted_gain(None), contradicts=[text], fix=FIX
    )
