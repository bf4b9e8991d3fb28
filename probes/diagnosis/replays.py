"""Replays of measured stage times, each run once."""

from __future__ import annotations

import math
from collections.abc import Iterable

from engine.emulated.band import Band, ordered
from engine.emulated.counterfactual import Measured, evenly_split, replay
from engine.emulated.theory import throughput


class Replays:
    """Remembers what each replay gave: the same one is asked for by several hypotheses."""

    def __init__(self, measured: Measured) -> None:
        self.measured = measured
        self._rates: dict[Measured, Band] = {}

    def rate(self, measured: Measured) -> Band:
        """Tokens a second."""
        if measured not in self._rates:
            self._rates[measured] = replay(measured)
        return self._rates[measured]

    def gain(self, after: Measured, before: Measured | None = None) -> Band:
        """Throughput of `after` over that of `before` (default: what was measured), end of the band by end."""
        a, b = self.rate(after), self.rate(before if before is not None else self.measured)
        return ordered(a.low / b.low, a.mid / b.mid, a.high / b.high)


def best_even_split(measured: Measured, least: int, most: int) -> Measured:
    """The even split into `least` to `most` micro-batches that is fastest by the closed form; the most where equal."""
    counts = range(least, max(least, min(most, measured.concurrency)) + 1)
    return fastest(evenly_split(measured, count) for count in counts)


def fastest(splits: Iterable[Measured]) -> Measured:
    """The even split that is fastest by the closed form; the one of most micro-batches where equal."""
    return max(splits, key=lambda split: (_closed_form(split), len(split.cohorts)))


def effective_depth(measured: Measured, size: int) -> float:
    """p_eff with micro-batches of `size`: how many just keep the slowest stage busy."""
    taus = _taus(measured, size)
    return (sum(taus) + sum(measured.hop_s) + measured.feedback_s) / max(taus)


def deepest_useful(measured: Measured) -> int:
    """No even split into more micro-batches than this can be faster: p_eff for the smallest micro-batches."""
    return math.ceil(effective_depth(measured, 1)) + 1


def _closed_form(split: Measured) -> float:
    taus = _taus(split, split.cohorts[0])
    return throughput(split.concurrency, taus, len(split.cohorts), 0.0, sum(split.hop_s) + split.feedback_s)


def _taus(measured: Measured, size: int) -> list[float]:
    return [curve.at(size, graphs=measured.graphs).mid for curve in measured.curves]
