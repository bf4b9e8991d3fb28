"""Matching communication kernels over ranks: a send with its receive, a collective with its other participants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from probes.traces.quantile import median, quantile
from probes.traces.trace import UNKNOWN, CommOp, RankTrace

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_SHIFT = 64
_LEAST_AGREEMENT = 0.6
_SURE_AGREEMENT = 0.9
_SAME_SPREAD_NS = 20_000
WAITED_NS = 10_000
"""A kernel this much longer than three times the shortest of its kind waited for its peer."""


@dataclass(frozen=True)
class Pairing:
    """Matched operations of two ranks (indices into the list of traces), as indices into their `comm` lists.

    `ordered`: rank `a` sends and `b` receives; otherwise both wait for each other.
    """

    a: int
    b: int
    ordered: bool
    a_ops: NDArray[np.int64]
    b_ops: NDArray[np.int64]


@dataclass(frozen=True)
class Matching:
    """All pairs of ranks that communicate, and every operation's partners.

    `partners[r][i]` lists (rank index, op index) of the operations that took part together with operation i of rank
    index r. `disagreeing`: rank indices with a sequence of sizes that does not fit that of its other end.
    """

    pairings: list[Pairing]
    partners: list[list[list[tuple[int, int]]]]
    disagreeing: frozenset[int] = frozenset()


def match(traces: Sequence[RankTrace]) -> Matching:
    """Match the communication of several ranks of one run."""
    index_of = {trace.rank: i for i, trace in enumerate(traces)}
    sends: dict[tuple[int, int], dict[bool, list[int]]] = defaultdict(lambda: {True: [], False: []})
    collectives: dict[tuple[str, str], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for r, trace in enumerate(traces):
        for i, op in enumerate(trace.comm):
            if op.op in ("send", "recv"):
                peer = _peer(op, trace, index_of, len(traces))
                if peer is not None:
                    pair = (r, peer) if op.op == "send" else (peer, r)
                    sends[pair][op.op == "send"].append(i)
            else:
                collectives[op.group, op.op][r].append(i)
    partners: list[list[list[tuple[int, int]]]] = [[[] for _ in trace.comm] for trace in traces]
    pairings: list[Pairing] = []
    disagreeing: set[int] = set()

    def join(a: int, b: int, ordered: bool, a_ops: list[int], b_ops: list[int]) -> None:
        fitted = _fit([traces[a].comm[i] for i in a_ops], [traces[b].comm[i] for i in b_ops])
        if fitted is None:
            disagreeing.update((a, b))
            return
        shift, count = fitted
        first_a, first_b = max(shift, 0), max(-shift, 0)
        chosen_a, chosen_b = a_ops[first_a : first_a + count], b_ops[first_b : first_b + count]
        pairings.append(Pairing(a, b, ordered, np.array(chosen_a), np.array(chosen_b)))
        for i, j in zip(chosen_a, chosen_b, strict=True):
            partners[a][i].append((b, j))
            partners[b][j].append((a, i))

    for (a, b), ops in sends.items():
        if ops[True] and ops[False]:
            join(a, b, True, ops[True], ops[False])
    for members in collectives.values():
        ranks = sorted(members)
        for b in ranks[1:]:
            join(ranks[0], b, False, members[ranks[0]], members[b])
    for own in partners:
        for linked in own:
            _complete(linked, partners)
    return Matching(pairings, partners, frozenset(disagreeing))


def _complete(linked: list[tuple[int, int]], partners: list[list[list[tuple[int, int]]]]) -> None:
    """A collective was joined through its first rank: let every participant know all the others."""
    for rank, op in list(linked):
        for other in partners[rank][op]:
            if other not in linked and partners[other[0]][other[1]] is not linked:
                linked.append(other)


def _peer(op: CommOp, trace: RankTrace, index_of: dict[int, int], count: int) -> int | None:
    """The index of the trace at the other end of a send or receive; None when it is not among the files."""
    told = op.dst if op.op == "send" else op.src
    if told == UNKNOWN:
        if count != 2:
            return None
        return next(i for rank, i in index_of.items() if rank != trace.rank)
    ranks = [int(part) for part in op.group.strip("[]").split(",") if part.strip().isdigit()]
    if ranks and (told not in ranks or told == trace.rank) and told < len(ranks):
        told = ranks[told]
    return index_of.get(told) if told != trace.rank else None


def _fit(a: list[CommOp], b: list[CommOp]) -> tuple[int, int] | None:
    """How far `a` is ahead of `b`, and how many operations overlap; None when their sizes do not fit.

    A recording may begin or end between two operations, so sequences of different lengths may be shifted against each
    other. Among shifts whose sizes agree, the one with the steadiest difference of ends is right; steady decode looks
    the same under several, and then the recorded clocks decide.
    """
    sizes_a, sizes_b = (np.array([op.elements for op in ops]) for ops in (a, b))
    ends_a, ends_b = (np.array([op.end for op in ops]) for ops in (a, b))
    lengths_b = np.array([op.end - op.start for op in b])
    waited = lengths_b > 3 * lengths_b.min() + WAITED_NS
    if len(a) == len(b) and float(np.mean(sizes_a == sizes_b)) >= _SURE_AGREEMENT:
        return 0, len(a)
    fits: list[tuple[float, float, float, int, int]] = []
    limit = min(_MAX_SHIFT, max(len(a), len(b)) - 1)
    for shift in range(-limit, limit + 1):
        x, y = max(shift, 0), max(-shift, 0)
        count = min(len(a) - x, len(b) - y)
        if count < max(1, (min(len(a), len(b)) + 1) // 2):
            continue
        agreement = float(np.mean(sizes_a[x : x + count] == sizes_b[y : y + count]))
        gaps = ends_b[y : y + count] - ends_a[x : x + count]
        spread = _spread(gaps, waited[y : y + count])
        fits.append((agreement, spread, abs(median(gaps)), shift, count))
    best = max((fit[0] for fit in fits), default=0.0)
    if best < _LEAST_AGREEMENT:
        return None
    agreeing = [fit for fit in fits if fit[0] >= best - 0.01]
    steadiest = min(fit[1] for fit in agreeing)
    steady = [fit for fit in agreeing if fit[1] <= 2 * steadiest + _SAME_SPREAD_NS]
    chosen = min(steady, key=lambda fit: fit[2])
    return chosen[3], chosen[4]


def _spread(gaps: NDArray[np.int64], waited: NDArray[np.bool_]) -> float:
    """How far the differences of ends stray: where the second rank waited they are all the same but for errors."""
    chosen = gaps[waited] if waited.any() else gaps
    return quantile(np.abs(chosen - median(chosen)), 0.9)
