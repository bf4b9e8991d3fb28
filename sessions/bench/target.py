"""What a benchmark runs against: a live engine behind a channel, or an engine core in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sessions.clock import Clock
from sessions.knobs import KnobName, KnobValue
from sessions.messages import EngineState, KnobReply, KnobState, Message, RequestSpec


class TargetLost(RuntimeError):
    """The engine failed or went away during a benchmark; the text is one line that says why."""


class Target(Protocol):
    """An engine that takes requests and hands back its messages. One thread uses it."""

    @property
    def clock(self) -> Clock:
        """The clock that the engine stamps its tokens with."""
        ...

    @property
    def engine(self) -> EngineState:
        """The last state the engine told; its phase is `ready` from the start."""
        ...

    @property
    def knobs(self) -> KnobState:
        """The last knob state the engine told."""
        ...

    def submit(self, requests: Sequence[RequestSpec]) -> str:
        """Put requests into the waiting queue at one instant; "" or the one-line reason why all were refused."""
        ...

    def cancel(self, requests: Sequence[str]) -> None:
        """End these requests; each still gets its Finished."""
        ...

    def turn(self, knob: KnobName, value: KnobValue) -> KnobReply:
        """Turn a knob and wait for the answer."""
        ...

    def advance(self, until_ns: int) -> list[Message]:
        """Let time pass until messages arrive, at most to `until_ns`; return them, oldest first. At least TokenFrame,
        QueueFrame, StageFrame and, where there are GPUs, GpuFrame. Raise TargetLost."""
        ...
