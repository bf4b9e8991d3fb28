"""Where each rank's time went, from stage spans: the same six parts as from traces.

While a stage waits for its next micro-batch it has a bubble until that micro-batch was handed on by the stage before
(for the first stage: until its slot's tokens were out, after which the host keeps it waiting); from there on the wire.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from probes.diagnosis.evidence import Decomposition, Parallelism, RankTime, StageSpan
from probes.diagnosis.steady import first_stage


def rank_times(
    spans: Sequence[StageSpan], stages: int, parallelism: Parallelism, labels: dict[int, str]
) -> list[RankTime]:
    """Decompose every rank's time over the stretch that all ranks' spans cover."""
    by_rank: dict[int, list[StageSpan]] = defaultdict(list)
    for span in spans:
        by_rank[span.rank].append(span)
    if not by_rank:
        return []
    for own in by_rank.values():
        own.sort(key=lambda s: s.start)
    start = max(own[0].wait for own in by_rank.values())
    end = min(own[-1].sent for own in by_rank.values())
    if end <= start:
        start = min(own[0].wait for own in by_rank.values())
        end = max(own[-1].sent for own in by_rank.values())
    handed_on = _handed_on(spans, stages)
    shortest = _shortest_reduce(spans) if parallelism == "ep" else {}
    return [
        RankTime(
            rank=rank,
            stage=own[0].stage,
            label=labels.get(rank, f"rank {rank}"),
            window=end - start,
            decomposition=_decompose(own, (start, end), handed_on, shortest if parallelism == "ep" else None),
        )
        for rank, own in sorted(by_rank.items())
    ]


def _handed_on(spans: Sequence[StageSpan], stages: int) -> dict[tuple[int, int], int]:
    """When a step's input left where it comes from, by (stage, step): the stage before, or the slot's last tokens."""
    sent = {(span.stage, span.step): span.sent for span in spans}
    found = {(stage + 1, step): instant for (stage, step), instant in sent.items() if stage + 1 < stages}
    previous: dict[int, int] = {}
    for span in first_stage(spans):
        before = previous.get(span.slot)
        if before is not None and (stages - 1, before) in sent:
            found[0, span.step] = sent[stages - 1, before]
        previous[span.slot] = span.step
    return found


def _shortest_reduce(spans: Sequence[StageSpan]) -> dict[int, int]:
    """By step, the least time any rank spent between its own work's end and the collective's: transfer alone."""
    least: dict[int, int] = {}
    for span in spans:
        least[span.step] = min(least.get(span.step, span.sent - span.end), span.sent - span.end)
    return least


def _decompose(
    own: Sequence[StageSpan],
    window: tuple[int, int],
    handed_on: dict[tuple[int, int], int],
    shortest: dict[int, int] | None,
) -> Decomposition:
    start, end = window
    parts: dict[str, int] = defaultdict(int)
    cursor = start

    def until(instant: int, part: str) -> None:
        nonlocal cursor
        instant = min(instant, end)
        if instant > cursor:
            parts[part] += instant - cursor
            cursor = instant

    for span in own:
        source = handed_on.get((span.stage, span.step))
        until(span.wait, "host")
        until(min(source if source is not None else span.ready, span.ready), "bubble")
        until(span.ready, "host" if span.stage == 0 else "wire")
        until(span.start, "launch_gap")
        until(span.end, "compute")
        if shortest is not None:
            until(span.sent - shortest[span.step], "comm_wait")
        until(span.sent, "wire")
    until(end, "bubble")
    length = max(1, end - start)
    names = ("compute", "wire", "launch_gap", "comm_wait", "host", "bubble")
    return Decomposition(**{name: parts[name] / length for name in names})
