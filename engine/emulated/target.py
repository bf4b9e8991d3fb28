"""An engine core on the emulated cluster in virtual time, as a benchmark's target."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from engine.config import EngineConfig
from engine.core import EngineCore
from engine.emulated.clock import VirtualClock
from engine.emulated.cluster import Cluster
from engine.emulated.executor import SECOND_NS, EmulatedExecutor
from sessions.clock import Clock
from sessions.knobs import KnobName, KnobValue
from sessions.messages import (
    CancelRequests,
    Command,
    EngineState,
    KnobReply,
    KnobRequest,
    KnobState,
    Message,
    Reply,
    RequestSpec,
    SubmitRequests,
)

LONGEST_STEP_S = 3600.0
"""Virtual seconds that one micro-batch may take before a waiting command gives up."""


class VirtualTarget:
    """Implements sessions.bench.target.Target. Time passes only in `advance` and `turn`."""

    def __init__(self, config: EngineConfig, cluster: Cluster | None = None, source: str = "emulated") -> None:
        """`cluster` stands in for the one that the configuration names. Raise ConfigError."""
        self._clock = VirtualClock()
        self._executor = EmulatedExecutor(config, self._clock, cluster)
        self._core = EngineCore(config, self._executor, self._clock, source=source)
        self._source = source
        self._ids = itertools.count()
        self._inbox: list[Message] = []
        self._engine = self._core.state("ready")
        self._knobs = self._core.knob_state()

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def engine(self) -> EngineState:
        return self._engine

    @property
    def knobs(self) -> KnobState:
        return self._knobs

    def submit(self, requests: Sequence[RequestSpec]) -> str:
        reply = self._ask(
            SubmitRequests(source=self._source, t_ns=self._clock.now_ns(), id=self._id(), requests=list(requests))
        )
        return "" if reply.ok else reply.reason

    def cancel(self, requests: Sequence[str]) -> None:
        if requests:
            now_ns = self._clock.now_ns()
            self._ask(CancelRequests(source=self._source, t_ns=now_ns, id=self._id(), requests=list(requests)))

    def turn(self, knob: KnobName, value: KnobValue) -> KnobReply:
        now_ns = self._clock.now_ns()
        reply = self._ask(KnobRequest(source=self._source, t_ns=now_ns, id=self._id(), knob=knob, value=value))
        assert isinstance(reply, KnobReply)
        return reply

    def advance(self, until_ns: int) -> list[Message]:
        while not self._inbox:
            left_ns = until_ns - self._clock.now_ns()
            self._step(max(0, left_ns) / SECOND_NS)
            if left_ns <= 0:
                break
        messages, self._inbox = self._inbox, []
        return messages

    def close(self) -> None:
        """Release the executor."""
        self._executor.close()

    def _step(self, wait_s: float) -> None:
        for message in self._core.step(wait_s):
            if isinstance(message, EngineState):
                self._engine = message
            elif isinstance(message, KnobState):
                self._knobs = message
            self._inbox.append(message)

    def _ask(self, command: Command) -> Reply:
        """Let the core take the command in, and step until it has answered; other messages wait for `advance`."""
        self._core.handle(command)
        deadline_ns = self._clock.now_ns() + round(LONGEST_STEP_S * SECOND_NS)
        wait_s = 0.0
        while self._clock.now_ns() < deadline_ns:
            seen = len(self._inbox)
            self._step(wait_s)
            for message in self._inbox[seen:]:
                if isinstance(message, Reply) and message.id == command.id:
                    self._inbox.remove(message)
                    return message
            wait_s = LONGEST_STEP_S
        raise TimeoutError(f"{type(command).__name__} was not answered within {LONGEST_STEP_S:.0f} virtual seconds")

    def _id(self) -> str:
        return f"{self._source}-{next(self._ids)}"
