"""What the ranks' communication kernels did: how long they moved data, how long they waited, and for whom."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from probes.diagnosis.evidence import Communication
from probes.traces import intervals
from probes.traces.decompose import wire_times
from probes.traces.load import TraceSet
from probes.traces.match import Pairing

P2P = ("send", "recv")


def communication(traces: TraceSet, stages: int) -> Communication | None:
    """What the communication kernels of all ranks did; None when there are none."""
    kernel = wire = operations = 0
    sizes: list[int] = []
    lengths: list[int] = []
    by_rank: dict[int, tuple[str, float, float]] = {}
    for index, trace in enumerate(traces.ranks):
        moving = wire_times(traces, index)
        busy = intervals.of((op.start, op.end) for op in trace.comm)
        rank_kernel, rank_wire = intervals.total(busy), intervals.total(moving)
        kernel += sum(op.end - op.start for op in trace.comm)
        wire += sum(_wire(traces, index, i) for i in range(len(trace.comm)))
        operations += len(trace.comm)
        if trace.comm:
            longest: dict[str, int] = defaultdict(int)
            for op in trace.comm:
                longest[op.op] += op.end - op.start
            main = max(longest, key=lambda op: longest[op])
            by_rank[trace.rank] = (main, rank_kernel / 1e9, 1.0 - rank_wire / rank_kernel if rank_kernel else 0.0)
        for i, op in enumerate(trace.comm):
            if op.bytes and traces.matching.partners[index][i]:
                sizes.append(op.bytes)
                lengths.append(_wire(traces, index, i))
    if not operations:
        return None
    together = not traces.missing or stages > 1
    matched = together and any(partner for own in traces.matching.partners for partner in own)
    last, expert = _last_to_join(traces)
    return Communication(
        kernel_s=kernel / 1e9,
        waiting=1.0 - wire / kernel if matched and kernel else None,
        operations=operations,
        bytes_per_operation=median(sizes) if sizes else None,
        wire_per_operation=median(lengths) / 1e9 if lengths else None,
        waiting_by_rank=by_rank,
        hop_wire=_hop_wire(traces, stages),
        last=last,
        expert=expert,
    )


def _wire(traces: TraceSet, index: int, i: int) -> int:
    """How long this operation moved data: its shortest participant's length."""
    op = traces.ranks[index].comm[i]
    others = (traces.ranks[r].comm[j] for r, j in traces.matching.partners[index][i])
    return min(op.end - op.start, *(other.end - other.start for other in others), op.end - op.start)


def _hop_wire(traces: TraceSet, stages: int) -> dict[int, float]:
    """Seconds of transfer a step, by the stage that sends forward to the next."""
    found: dict[int, float] = {}
    for pairing in traces.matching.pairings:
        sender, receiver = traces.stage_of(pairing.a), traces.stage_of(pairing.b)
        own = len(traces.steps[pairing.b])
        if pairing.ordered and receiver == sender + 1 and receiver < stages and own:
            found[sender] = max(found.get(sender, 0.0), _transfer(traces, pairing) / own / 1e9)
    return found


def _transfer(traces: TraceSet, pairing: Pairing) -> float:
    """Total ns that these sends take when their receiver stands ready: by size, the median of those where it did.

    A late receiver finds small messages delivered already, so its own kernel says nothing about the link.
    """
    by_size: dict[int, list[tuple[bool, int]]] = defaultdict(list)
    for i, j in zip(pairing.a_ops.tolist(), pairing.b_ops.tolist(), strict=True):
        sent, got = traces.ranks[pairing.a].comm[i], traces.ranks[pairing.b].comm[j]
        by_size[sent.elements].append((got.start <= sent.start, got.end - max(sent.start, got.start)))
    total = 0.0
    for times in by_size.values():
        ready = [length for early, length in times if early]
        total += max(0.0, median(ready or [length for _, length in times])) * len(times)
    return total


def _last_to_join(traces: TraceSet) -> tuple[dict[int, float], dict[int, float]]:
    """For each rank the share of collectives that it joined last, and its experts' time a collective (seconds)."""
    firsts: dict[int, int] = defaultdict(int)
    total = 0
    for i, op in enumerate(traces.ranks[0].comm):
        partners = traces.matching.partners[0][i]
        if op.op in P2P or len(partners) + 1 < len(traces.ranks) or not partners:
            continue
        joined = {traces.ranks[r].rank: traces.ranks[r].comm[j].start for r, j in partners}
        joined[traces.ranks[0].rank] = op.start
        total += 1
        firsts[max(joined, key=lambda rank: joined[rank])] += 1
    if not total:
        return {}, {}
    expert = {
        trace.rank: float((trace.ops.end - trace.ops.start)[trace.ops.expert].sum()) / 1e9 / total
        for trace in traces.ranks
    }
    return {trace.rank: firsts[trace.rank] / total for trace in traces.ranks}, expert
