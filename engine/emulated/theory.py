"""Closed forms of a pipeline in steady decode (Pipeline theory, docs/theory.md).

p stages, M equal micro-batches live, tau_s the time of stage s on one of them, c a hop from stage to stage (p of them a
lap: p - 1 forward, one back with the tokens), f the host's feedback. Any one unit of time.
"""

from __future__ import annotations

from collections.abc import Sequence


def cycle_time(taus: Sequence[float], micro_batches: int, hop: float = 0.0, feedback: float = 0.0) -> float:
    """T_cycle = max(M max_s tau_s, sum_s tau_s + p c + f): bound by the slowest stage, or by one lap."""
    return max(micro_batches * max(taus), lap_time(taus, hop, feedback))


def lap_time(taus: Sequence[float], hop: float = 0.0, feedback: float = 0.0) -> float:
    """One micro-batch alone, once round: sum_s tau_s + p c + f. A single stage has no hop."""
    hops = len(taus) if len(taus) > 1 else 0
    return sum(taus) + hops * hop + feedback


def effective_stages(taus: Sequence[float], hop: float = 0.0, feedback: float = 0.0) -> float:
    """p_eff = lap / tau of the slowest stage (p + (p c + f) / tau if equal): micro-batches that just keep it busy."""
    return lap_time(taus, hop, feedback) / max(taus)


def bubble(taus: Sequence[float], micro_batches: int, hop: float = 0.0, feedback: float = 0.0) -> float:
    """Share of time in which the slowest stage has no micro-batch: 1 - min(1, M / p_eff)."""
    return 1.0 - min(1.0, micro_batches / effective_stages(taus, hop, feedback))


def throughput(
    concurrency: int, taus: Sequence[float], micro_batches: int, hop: float = 0.0, feedback: float = 0.0
) -> float:
    """X = C / T_cycle, `taus` being those of micro-batches of C / M."""
    return concurrency / cycle_time(taus, micro_batches, hop, feedback)


def uneven_cycle_bound(taus: Sequence[Sequence[float]], hop: float = 0.0, feedback: float = 0.0) -> float:
    """Lower bound of T_cycle for unequal micro-batches, `taus[m][s]` being micro-batch m's time on stage s.

    max(max_s sum_m tau_ms, max_m lap_m). Exact where tau_ms = a_m b_s; else it can be 30 % short, and only the
    recursion (engine/emulated/pipeline.py) is exact.
    """
    stages = len(taus[0])
    busiest = max(sum(row[s] for row in taus) for s in range(stages))
    return max(busiest, max(lap_time(row, hop, feedback) for row in taus))


def deherding_gain(tau_all: float, tau_share: float) -> float:
    """Gain of p equal micro-batches of C / p over one herd of C: tau(C) / tau(C / p), not p.

    About 1 for weights that every batch reads whole; large for experts, whose number grows with the batch.
    """
    return tau_all / tau_share
