"""Rounds of a pipeline: which micro-batches go round together, and how many requests each carries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from probes.diagnosis.evidence import UNKNOWN_SLOT, Evidence, SlotSample, StageSpan
from probes.diagnosis.steady import first_stage
from sessions.herd import concentration


def assign_slots(first: Sequence[tuple[int, int]], last_end: Sequence[int | None]) -> list[int]:
    """Slots for micro-batches that come without one: a step takes over from the one that left the pipeline first.

    first: (start, end) of each step on the first stage, in order; last_end: its end on the last stage, None when not
    seen. A step whose predecessor has not left yet travels beside it, in a slot of its own.
    """
    slots: list[int] = []
    free_from: dict[int, int] = {}
    for (start, end), left in zip(first, last_end, strict=True):
        idle = [slot for slot, until in free_from.items() if until <= start]
        slot = min(idle, key=lambda s: free_from[s]) if idle else len(free_from)
        slots.append(slot)
        free_from[slot] = left if left is not None else end
    return slots


def followed(spans: Sequence[StageSpan], waves: int) -> Sequence[StageSpan]:
    """The spans with a slot that follows the requests. Where more slots are used than micro-batches go round, requests
    wander from slot to slot, and a slot's next step is not the next one of its requests."""
    first = [span for span in first_stage(spans) if span.slot != UNKNOWN_SLOT]
    if len({span.slot for span in first}) <= waves:
        return spans
    last = max(span.stage for span in spans)
    ends = {span.step: span.end for span in spans if span.stage == last}
    slots = assign_slots([(span.start, span.end) for span in first], [ends.get(span.step) for span in first])
    slot_of = dict(zip((span.step for span in first), slots, strict=True))
    return [msgspec.structs.replace(span, slot=slot_of.get(span.step, UNKNOWN_SLOT)) for span in spans]


def rounds(spans: Sequence[StageSpan]) -> list[SlotSample]:
    """For each decode step on the first stage, the sizes of all micro-batches of that round (its own the last).

    A round of a slot is what started on the first stage after that slot's previous step: with micro-batches taking
    turns, each live slot once.
    """
    first = [span for span in first_stage(spans) if span.slot != UNKNOWN_SLOT]
    previous: dict[int, int] = {}
    found: list[SlotSample] = []
    for index, span in enumerate(first):
        begun = previous.get(span.slot)
        previous[span.slot] = index
        if begun is None or not span.decode:
            continue
        live = {s.slot: s.decode for s in first[begun + 1 : index + 1] if s.decode}
        found.append(SlotSample(span.start, tuple(live[slot] for slot in sorted(live))))
    return found


def samples(evidence: Evidence) -> list[SlotSample]:
    """Slot sizes at instants with decode requests: those sampled by the engine, else those of the rounds."""
    if evidence.slots:
        return [sample for sample in evidence.slots if sum(sample.sizes)]
    return rounds(evidence.spans)


def typical(found: Sequence[SlotSample]) -> tuple[int, ...] | None:
    """Cohorts that stand for all samples: the most frequent sizes, or, where none is frequent, those of the median
    concentration among samples of the median request count. Largest first, empty ones left out."""
    if not found:
        return None
    counts = Counter(tuple(sorted((n for n in sample.sizes if n), reverse=True)) for sample in found)
    sizes, often = counts.most_common(1)[0]
    if often >= 0.3 * len(found):
        return sizes
    totals = sorted(sum(sample.sizes) for sample in found)
    total = totals[len(totals) // 2]
    near = [sizes for sizes in counts.elements() if sum(sizes) == total] or list(counts.elements())
    near.sort(key=concentration)
    return near[len(near) // 2]
