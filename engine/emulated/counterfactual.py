"""What would happen if one thing were fixed: measured stage times replayed by the max-plus recursion.

    before = Measured(...)                       from spans, a recording or traces
    gain(before, evenly_split(before))           Band of (throughput fixed / throughput replayed)

The replay of `before` itself is the denominator, so what the recursion leaves out cancels. `best_expected` is the live
screen's expectation: the same stage times, de-herded at the best depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from engine.emulated.band import Band, ordered
from engine.emulated.curves import StageCurve
from engine.emulated.pipeline import Cohort, Steady, steady_state
from engine.emulated.theory import effective_stages

MAX_DEPTH = 64


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A window of steady decode. Seconds.

    curves: a stage's time by micro-batch size, one a stage. cohorts: decode requests of each micro-batch that goes
    round, in turn order (empty ones left out). hop_s: from one stage's end to the next one's input, waiting left out
    (one per hop forward; p - 1 of them). feedback_s: from the last stage's end to the same slot's next start at the
    first stage, host included; host_s is the host's share of it. graphs: launching costs nothing.
    removed_s: seconds a micro-batch that are taken off a stage.
    """

    curves: tuple[StageCurve, ...]
    cohorts: tuple[int, ...]
    hop_s: tuple[float, ...] = ()
    feedback_s: float = 0.0
    host_s: float = 0.0
    graphs: bool = False
    removed_s: tuple[float, ...] = ()
    even_layers: bool = False

    @property
    def concurrency(self) -> int:
        return sum(self.cohorts)

    @property
    def stages(self) -> int:
        return len(self.curves)


def replay(measured: Measured) -> Band:
    """Tokens a second that the measured times give; the band comes from sizes that were not seen."""
    return ordered(*(_run(measured, level).rate for level in _SLOW_TO_FAST))


def occupancy(measured: Measured) -> tuple[float, ...]:
    """Each stage's busy share in the replay."""
    return _run(measured, "mid").occupancy


def gain(before: Measured, after: Measured) -> Band:
    """Throughput of `after` over that of `before`: 1 means that the fix adds nothing."""
    base = {level: _run(before, level).rate for level in _SLOW_TO_FAST}
    return ordered(*(_run(after, level).rate / base[level] for level in _SLOW_TO_FAST))


def evenly_split(measured: Measured, micro_batches: int | None = None) -> Measured:
    """The same requests in equal micro-batches: as many as go round now, or `micro_batches`."""
    count = max(1, min(measured.concurrency, micro_batches or len(measured.cohorts)))
    return msgspec.structs.replace(measured, cohorts=even_sizes(measured.concurrency, count))


def at_best_depth(measured: Measured, deepest: int = MAX_DEPTH) -> Measured:
    """Equal micro-batches, as many as give the highest throughput: about p_eff; more only re-read the weights."""
    candidates = (evenly_split(measured, m) for m in range(1, max(1, min(deepest, measured.concurrency)) + 1))
    return max(candidates, key=lambda m: _run(m, "mid").rate)


def with_graphs(measured: Measured) -> Measured:
    """Launching costs nothing: each stage takes its GPU time."""
    return msgspec.structs.replace(measured, graphs=True)


def with_balanced_stages(measured: Measured) -> Measured:
    """Every stage takes the mean of all stages, micro-batch by micro-batch."""
    return msgspec.structs.replace(measured, even_layers=True)


def with_links(measured: Measured, hop_s: Sequence[float]) -> Measured:
    """Hops take `hop_s` (wire time alone, or zeros)."""
    return msgspec.structs.replace(measured, hop_s=tuple(hop_s))


def without_host(measured: Measured) -> Measured:
    """The host answers at once."""
    return msgspec.structs.replace(measured, feedback_s=max(0.0, measured.feedback_s - measured.host_s), host_s=0.0)


def shortened(measured: Measured, seconds: Sequence[float]) -> Measured:
    """Each stage's micro-batches take `seconds[s]` less: waiting for the rank with most experts, for a collective."""
    return msgspec.structs.replace(measured, removed_s=tuple(seconds))


def p_eff(measured: Measured) -> float:
    """Equal micro-batches that just keep the slowest stage busy, at the size they have when split evenly."""
    even = evenly_split(measured)
    taus = _cohort(even, even.cohorts[0], "mid").taus
    lap_extra = sum(measured.hop_s) + measured.feedback_s
    return effective_stages(taus, 0.0, lap_extra)


def best_expected(measured: Measured) -> Band:
    """Tokens a second that these stages would give these requests with the herd dissolved at the best depth."""
    return replay(at_best_depth(measured))


def even_sizes(concurrency: int, parts: int) -> tuple[int, ...]:
    """`concurrency` in `parts` whole sizes that differ by at most 1, largest first, without zeros."""
    share, left = divmod(concurrency, parts)
    return tuple(size for size in (share + (i < left) for i in range(parts)) if size)


_SLOW_TO_FAST = ("high", "mid", "low")
"""Ends of the stage times' bands, in the order of rising throughput."""


def _run(measured: Measured, level: str) -> Steady:
    if not measured.cohorts:
        raise ValueError("no decode request to replay")
    cohorts = [_cohort(measured, size, level) for size in measured.cohorts]
    return steady_state(cohorts, measured.hop_s, measured.feedback_s)


def _cohort(measured: Measured, size: int, level: str) -> Cohort:
    taus = [_level(curve.at(size, graphs=measured.graphs), level) for curve in measured.curves]
    if measured.removed_s:
        taus = [max(1e-9, tau - less) for tau, less in zip(taus, measured.removed_s, strict=True)]
    if measured.even_layers:
        taus = [sum(taus) / len(taus)] * len(taus)
    return Cohort(size, tuple(taus))


def _level(band: Band, level: str) -> float:
    return float(getattr(band, level))


def combined(measured: Measured, fixes: Iterable[Measured]) -> Measured:
    """All of several fixes of the same `measured` at once: every field that a fix changed, the last one winning."""
    changed = {
        name: getattr(fix, name)
        for fix in fixes
        for name in fix.__struct_fields__
        if getattr(fix, name) != getattr(measured, name)
    }
    return msgspec.structs.replace(measured, **changed)
