"""Profiles of the workers: from a ProfileRequest to its reply with the traces and what profiling cost."""

from __future__ import annotations

from engine.executor import Executor
from engine.meter import Meter
from sessions.clock import Clock
from sessions.knobs import KnobError
from sessions.messages import ProfileReply, ProfileRequest

PROFILE_NS = 60 * 1_000_000_000
"""A profile whose steps do not come (nothing runs) is ended after this time."""
END_TIMEOUT_S = 300.0


class Profiler:
    """Records one profile at a time."""

    def __init__(self, executor: Executor, meter: Meter, clock: Clock, source: str) -> None:
        self._executor = executor
        self._meter = meter
        self._clock = clock
        self._source = source
        self._command: ProfileRequest | None = None
        self._steps_left = 0
        self._started_ns = 0
        self._tokens = 0
        self._rate_before: float | None = None

    def start(self, command: ProfileRequest) -> ProfileReply | None:
        """Begin to record; None, or the reply that says why not."""
        now_ns = self._clock.now_ns()
        try:
            if self._command is not None:
                raise KnobError("a profile is being recorded already: wait for it")
            if command.steps < 1:
                raise KnobError(f"steps must be at least 1, not {command.steps}")
            self._executor.profile(command.folder)
        except (KnobError, OSError) as error:
            return self._reply(command, now_ns, reason=str(error))
        self._command = command
        self._steps_left = command.steps
        self._rate_before = self._meter.recent_rate(now_ns)
        self._started_ns = self._clock.now_ns()
        self._tokens = self._meter.output_tokens
        return None

    def completed(self, micro_batches: int) -> ProfileReply | None:
        """Count completed micro-batches; when they are enough, wait for the traces and return the reply."""
        command, now_ns = self._command, self._clock.now_ns()
        if command is None:
            return None
        self._steps_left -= micro_batches
        if self._steps_left > 0 and now_ns - self._started_ns < PROFILE_NS:
            return None
        seconds = (now_ns - self._started_ns) / 1e9
        rate = (self._meter.output_tokens - self._tokens) / seconds if seconds > 0 else None
        self._command = None
        try:
            traces = self._executor.end_profile(END_TIMEOUT_S)
        except (KnobError, OSError, TimeoutError) as error:
            return self._reply(command, now_ns, reason=str(error))
        return self._reply(command, self._clock.now_ns(), traces=traces, rate=rate)

    def _reply(
        self,
        command: ProfileRequest,
        now_ns: int,
        reason: str = "",
        traces: list[str] | None = None,
        rate: float | None = None,
    ) -> ProfileReply:
        return ProfileReply(
            source=self._source,
            t_ns=now_ns,
            id=command.id,
            to=command.source,
            ok=not reason,
            reason=reason,
            traces=traces or [],
            tokens_per_s_profiled=rate,
            tokens_per_s_before=self._rate_before if not reason else None,
        )
