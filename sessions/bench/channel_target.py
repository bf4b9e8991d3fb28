"""A live engine behind a channel, as the target of a benchmark."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Sequence

from sessions.bench.target import TargetLost
from sessions.channel.interface import Channel, ChannelClosed, ChannelError
from sessions.clock import Clock, MonotonicClock
from sessions.knobs import KnobName, KnobValue
from sessions.messages import (
    CancelRequests,
    Command,
    EngineState,
    Fault,
    GpuFrame,
    KnobReply,
    KnobRequest,
    KnobState,
    Message,
    QueueFrame,
    Reply,
    RequestSpec,
    StageFrame,
    SubmitRequests,
    TokenFrame,
)

ANSWER_S = 30.0
KNOB_ANSWER_S = 120.0
MEASURED = (TokenFrame, QueueFrame, StageFrame, GpuFrame, EngineState, KnobState, Fault)


class ChannelTarget:
    """Measures through `channel`; the engine must be on this host, so that both read the same monotonic clock."""

    def __init__(self, channel: Channel, ready_timeout_s: float = 300.0) -> None:
        """Wait until the engine is ready. Raise TargetLost when it fails or is not ready in time."""
        self.clock: Clock = MonotonicClock()
        self._channel = channel
        self._name = f"bench-{uuid.uuid4().hex[:8]}"
        self._ids = itertools.count()
        self._inbox = channel.subscribe(MEASURED, capacity=65536)
        self._engine: EngineState | None = None
        self._knobs: KnobState | None = None
        deadline = time.monotonic() + ready_timeout_s
        while not self._ready():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TargetLost(f"the engine is not ready after {ready_timeout_s:.0f} s")
            self._note(self._get(min(left, 1.0)))

    @property
    def engine(self) -> EngineState:
        assert self._engine is not None
        return self._engine

    @property
    def knobs(self) -> KnobState:
        assert self._knobs is not None
        return self._knobs

    def submit(self, requests: Sequence[RequestSpec]) -> str:
        command = SubmitRequests(
            source=self._channel.source, t_ns=self.clock.now_ns(), id=self._id(), requests=list(requests)
        )
        reply = self._ask(command, ANSWER_S)
        return "" if reply.ok else reply.reason or "the engine refused without a reason"

    def cancel(self, requests: Sequence[str]) -> None:
        if requests:
            self._ask(
                CancelRequests(
                    source=self._channel.source, t_ns=self.clock.now_ns(), id=self._id(), requests=list(requests)
                ),
                ANSWER_S,
            )

    def turn(self, knob: KnobName, value: KnobValue) -> KnobReply:
        reply = self._ask(
            KnobRequest(source=self._channel.source, t_ns=self.clock.now_ns(), id=self._id(), knob=knob, value=value),
            KNOB_ANSWER_S,
        )
        if not isinstance(reply, KnobReply):
            raise TargetLost(f"the engine answered a knob request with: {reply.reason or 'another kind of reply'}")
        return reply

    def advance(self, until_ns: int) -> list[Message]:
        first = self._get(max(0.0, (until_ns - self.clock.now_ns()) / 1e9))
        if first is None:
            return []
        messages = [first, *self._inbox.drain()]
        for message in messages:
            self._note(message)
        return messages

    def close(self) -> None:
        """Stop reading; the channel stays open."""
        self._inbox.close()

    def _ready(self) -> bool:
        return self._engine is not None and self._engine.phase == "ready" and self._knobs is not None

    def _get(self, timeout_s: float) -> Message | None:
        try:
            return self._inbox.get(timeout_s)
        except ChannelClosed as error:
            raise TargetLost(f"the engine went away: {error}") from error

    def _note(self, message: Message | None) -> None:
        match message:
            case EngineState():
                self._engine = message
                if message.phase in ("failed", "stopping", "stopped"):
                    raise TargetLost(f"the engine is {message.phase}{': ' if message.detail else ''}{message.detail}")
            case KnobState():
                self._knobs = message
            case Fault():
                raise TargetLost(f"{message.what}: {message.cause}")
            case _:
                pass

    def _ask(self, command: Command, timeout_s: float) -> Reply:
        try:
            return self._channel.request(command, timeout_s)
        except ChannelError as error:
            raise TargetLost(f"the engine did not answer: {error}") from error

    def _id(self) -> str:
        return f"{self._name}-{next(self._ids)}"
