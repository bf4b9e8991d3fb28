"""Which messages are points of interest on the time line, and what their marks say."""

from __future__ import annotations

from typing import Literal

import msgspec

from sessions.messages import BenchPhase, EngineState, Fault, Goodbye, KnobReply, Marker, Message

Category = Literal["knob", "verdict", "bench", "alert", "note"]


_CANDIDATES = frozenset((Marker, KnobReply, Fault, EngineState, Goodbye, BenchPhase))


class Mark(msgspec.Struct, frozen=True):
    """A point of interest: when (recorder's clock), what sort, one line, and who said it."""

    t_ns: int
    category: str
    text: str
    source: str


def mark_of(at_ns: int, message: Message) -> Mark | None:
    """The mark that a message leaves, or None."""
    found = _describe(message) if type(message) in _CANDIDATES else None
    if found is None:
        return None
    category, text = found
    return Mark(at_ns, category, text, message.source)


def _describe(message: Message) -> tuple[Category, str] | None:
    match message:
        case Marker():
            return message.category, message.text
        case KnobReply(ok=True):
            return "knob", f"{message.knob} = {_shown(message.applied)} ({message.took_ms:.0f} ms)"
        case Fault():
            return "alert", f"{message.what}: {message.cause}"
        case EngineState(phase="failed"):
            return "alert", f"engine failed: {message.detail}" if message.detail else "engine failed"
        case Goodbye(expected=False):
            return "alert", f"{message.peer} is gone: {message.reason}"
        case BenchPhase(phase="start" | "done" | "failed"):
            return "bench", f"benchmark {message.run} {message.phase}"
        case BenchPhase(phase="point", concurrency=concurrency):
            return "bench", f"benchmark {message.run}: C={concurrency} done"
    return None


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
