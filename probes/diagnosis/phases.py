"""Stretches of a session between knob changes: each is diagnosed on its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from probes.diagnosis.from_messages import Gathered
from sessions.knobs import Knobs
from sessions.messages import EngineState, GpuFrame, KnobState, Message, StageFrame

WINDOW_NS = 20_000_000_000
"""What is kept of a long stretch: its last 20 to 40 s say all, and an hour of spans would not fit in memory."""
_SETTLE_NS = 200_000_000
"""After a knob change the pipeline still holds micro-batches of before: spans of the first 0.2 s are left out."""


class Phase(NamedTuple):
    """One stretch: under which knobs, from when to when (ns of the engine's clock), and its messages."""

    knobs: Knobs | None
    start_ns: int
    end_ns: int
    gathered: Gathered


def phases(messages: Iterable[Message]) -> Iterator[Phase]:
    """Cut a session's messages where knobs change; stretches without any measurement are left out."""
    current = Gathered()
    start = end = 0
    settled = forgotten = 0
    for message in messages:
        if isinstance(message, KnobState) and current.knobs is not None and message.knobs != current.knobs.knobs:
            if _measured(current):
                yield Phase(current.knobs.knobs, start, end, current)
            current = Gathered(engine=current.engine, knobs=message)
            start, settled = message.t_ns, message.t_ns + _SETTLE_NS
        if isinstance(message, StageFrame) and message.t_ns < settled:
            continue
        current.add(message)
        if not isinstance(message, EngineState | KnobState | GpuFrame):
            start = start or message.t_ns
            end = message.t_ns
            if end - forgotten > 2 * WINDOW_NS:
                forgotten = end - WINDOW_NS
                current.forget(forgotten)
    if _measured(current):
        yield Phase(current.knobs.knobs if current.knobs is not None else None, start, end, current)


def _measured(gathered: Gathered) -> bool:
    return bool(gathered.stage_frames or gathered.queue_frames or gathered.token_frames)
