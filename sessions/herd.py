"""How unevenly requests are spread over a pipeline: the herd metrics (Pipeline theory, docs/theory.md).

0 is evenly staggered, 1 is one herd. Every function returns a Metric: a value, or the reason why there is none.
Average these over instants; the herd index of a time-averaged occupancy is always 0, because each lap visits every
stage equally.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Metric(NamedTuple):
    """A value, or None and the reason `why` it is not defined."""

    value: float | None
    why: str = ""


class Activity(NamedTuple):
    """A(t), the stages that hold a micro-batch, averaged over a window: E[A] and E[A | A >= 1]."""

    mean: float
    mean_when_active: float


def concentration(counts: Sequence[int]) -> float:
    """HHI = sum (n_j / C)^2 of C = sum n_j >= 1 requests over bins."""
    total = sum(counts)
    return sum(n * n for n in counts) / (total * total)


def least_concentration(requests: int, bins: int) -> float:
    """HHI of the best integer split of `requests` >= 1 over min(requests, bins) bins."""
    each, extra = divmod(requests, min(requests, bins))
    filled = min(requests, bins)
    return (extra * (each + 1) ** 2 + (filled - extra) * each**2) / requests**2


def herd_index(counts: Sequence[int], stages: int) -> Metric:
    """H = clip((HHI - HHI_min) / (1 - HHI_min), 0, 1) of the decode requests in each bin (slot, or stage at a time).

    HHI_min is that of the best integer split over min(C, stages) bins: so many groups keep every stage busy, however
    many slots there are. Needs at least two requests and two stages; with fewer nothing could be spread.
    """
    requests = sum(counts)
    if requests < 2:
        return Metric(None, f"{requests} decode requests: two are needed")
    if stages < 2:
        return Metric(None, "one stage: nothing to spread requests over")
    least = least_concentration(requests, stages)
    return Metric(min(1.0, max(0.0, (concentration(counts) - least) / (1.0 - least))))


def waves(counts: Sequence[int]) -> Metric:
    """N_eff = 1 / HHI: how many equal groups the requests move in."""
    if sum(counts) < 1:
        return Metric(None, "no decode requests")
    return Metric(1.0 / concentration(counts))


def random_line(requests: int) -> Metric:
    """The herd index that random placement exceeds one time in twenty, about 2 / C. Below it nothing is proven."""
    if requests < 2:
        return Metric(None, f"{requests} decode requests: two are needed")
    return Metric(min(1.0, 2.0 / requests))


def activity(held: Sequence[Sequence[tuple[int, int]]], start: int, end: int) -> Activity | None:
    """Average the stages that hold a micro-batch over [start, end).

    `held` has, for every stage, the intervals (from, to) in which it held one; a stage's own intervals may touch or
    overlap. None when the window is empty or no stage held anything in it.
    """
    edges: list[tuple[int, int]] = []
    for intervals in held:
        for low, high in _merged(intervals, start, end):
            edges.append((low, 1))
            edges.append((high, -1))
    if not edges:
        return None
    edges.sort()
    area = active = level = 0
    previous = edges[0][0]
    for instant, change in edges:
        area += level * (instant - previous)
        active += (level > 0) * (instant - previous)
        level += change
        previous = instant
    return Activity(area / (end - start), area / active)


def lock_step(when: Activity, live: int, stages: int) -> Metric:
    """L = 1 - (kappa - 1) / (K - 1), kappa = E[A | A >= 1], K = min(live micro-batches or requests, stages).

    Needs the spans of every stage; with K = 1 there is nothing to be in step with.
    """
    reachable = min(live, stages)
    if reachable < 2:
        return Metric(None, f"at most {reachable} stages can be active at once: two are needed")
    return Metric(1.0 - (when.mean_when_active - 1.0) / (reachable - 1.0))


def utilisation(when: Activity, stages: int) -> Metric:
    """U = E[A] / p."""
    return Metric(when.mean / stages) if stages > 0 else Metric(None, "no stages")


MIN_CYCLES = 4
"""Fewest cycles of the pipeline that a burst index is computed from."""
STALL_CYCLES = 2.0
"""No token for longer than this is a pause of the server, not the rhythm of its pipeline."""


def burst(times: Sequence[float], cycle: float, stages: int, live: int) -> Metric:
    """B = (CV^2 / (p - 1) - B0) / (1 - B0), B0 = (p / K - 1) / (p - 1), from the instants of client tokens alone.

    Tokens are counted in bins of `cycle` / p (same unit as `times`); CV is the bins' coefficient of variation and
    K = min(live, stages). Pauses count as one cycle. Needs steady decode of at least two requests, two stages and
    MIN_CYCLES cycles.
    """
    reachable = min(live, stages)
    if reachable < 2:
        return Metric(None, f"at most {reachable} stages can be active at once: two are needed")
    if cycle <= 0 or not times:
        return Metric(None, "no tokens")
    times = without_pauses(sorted(times), cycle)
    first = times[0]
    cycles = int((times[-1] - first) / cycle)
    if cycles < MIN_CYCLES:
        return Metric(None, f"tokens span {cycles} cycles: {MIN_CYCLES} are needed")
    bins = [0] * (cycles * stages)
    width = cycle / stages
    for instant in times:
        index = int((instant - first) / width)
        if index < len(bins):
            bins[index] += 1
    mean = sum(bins) / len(bins)
    variance = sum((n - mean) ** 2 for n in bins) / len(bins)
    base = (stages / reachable - 1.0) / (stages - 1.0)
    return Metric((variance / mean**2 / (stages - 1.0) - base) / (1.0 - base))


def without_pauses(times: Sequence[float], cycle: float) -> list[float]:
    """The same instants, in order, with every pause shortened to one cycle."""
    moved: list[float] = []
    cut = 0.0
    for index, instant in enumerate(times):
        gap = instant - times[index - 1] if index else 0.0
        if gap > STALL_CYCLES * cycle:
            cut += gap - cycle
        moved.append(instant - cut)
    return moved


def _merged(intervals: Sequence[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted((max(low, start), min(high, end)) for low, high in intervals):
        if low >= high:
            continue
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged
