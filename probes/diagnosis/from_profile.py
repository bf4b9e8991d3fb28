"""Evidence from a profile that the engine recorded on demand: its traces, with the knobs and spans of that moment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from probes.diagnosis.evidence import Evidence
from probes.diagnosis.from_messages import evidence_from_messages, gather
from probes.diagnosis.from_traces import evidence_from_traces
from probes.traces.events import TraceError
from probes.traces.load import load
from sessions.messages import Message


def evidence_from_profile(traces: Sequence[Path], messages: Sequence[Message]) -> Evidence:
    """Read the traces; where they hold no GPU work (a CPU engine), use the spans recorded meanwhile and say so.

    Raise TraceError when neither tells anything.
    """
    gathered = gather(messages)
    told = msgspec.structs.replace(evidence_from_messages(gathered), tokens_per_s=None)
    try:
        found = evidence_from_traces(load(traces))
    except TraceError as error:
        if not told.spans:
            raise
        return msgspec.structs.replace(told, notes=[*told.notes, f"spans are used instead of the traces: {error}"])
    if not found.spans and told.spans:
        note = "micro-batches are taken from the spans: the traces do not mark them"
        return msgspec.structs.replace(
            told,
            ranks=found.ranks,
            communication=found.communication,
            profiler=found.profiler,
            notes=[*found.notes, note],
        )
    return msgspec.structs.replace(
        found,
        engine="herdscope",
        slot_count=told.slot_count,
        slots_assumed=told.slot_count is None,
        knobs=told.knobs,
        model=told.model,
        layers=told.layers,
    )
