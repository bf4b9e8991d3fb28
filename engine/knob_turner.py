"""Turns knobs while requests run: all at once but the parallelism, which waits until nothing is in flight."""

from __future__ import annotations

from collections import deque

from engine.config import OutOfMemory
from engine.executor import Executor
from engine.scheduler.limits import Limits
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Scheduler
from sessions.clock import Clock
from sessions.knobs import KnobError, KnobName, Knobs, with_knob
from sessions.messages import KnobReply, KnobRequest

EXECUTORS: tuple[KnobName, ...] = ("cuda_graphs", "parallelism")
"""Knobs that the executor turns."""


def limits_of(executor: Executor) -> Limits:
    """What the executor can hold now."""
    can = executor.capabilities
    return Limits(
        kv_blocks=can.kv_blocks,
        block_size=can.block_size,
        max_context=can.max_context,
        vocab=can.model.vocab,
        eos=frozenset(can.eos),
    )


class KnobTurner:
    """Takes knob requests and turns them in their order.

    `switching` names the change that waits for what is in flight, or that the next `turn` will make; while it is set
    nothing may be submitted. `unfit` collects requests ended because the engine can no longer hold them, with why.
    """

    def __init__(self, knobs: Knobs, executor: Executor, scheduler: Scheduler, clock: Clock, source: str) -> None:
        self.knobs = knobs
        self.switching: str | None = None
        self.unfit: list[tuple[Request, str]] = []
        self._executor = executor
        self._scheduler = scheduler
        self._clock = clock
        self._source = source
        self._asked: deque[tuple[KnobRequest, int]] = deque()

    def ask(self, command: KnobRequest) -> None:
        """Put a request behind those asked before."""
        self._asked.append((command, self._clock.now_ns()))

    @property
    def waiting(self) -> bool:
        """Whether requests are not answered yet."""
        return bool(self._asked)

    def turn(self) -> KnobReply | None:
        """Turn the next knob and return its reply; None when none is asked for, or when it has to wait.

        A change of the parallelism is announced in `switching` by one call and made by a later one, once nothing is in
        flight, so that the caller can tell its listeners in between. Raise WorkerDied.
        """
        if not self._asked:
            return None
        command, asked_ns = self._asked[0]
        before = self.knobs
        recomputed, reason = 0, ""
        try:
            knobs = with_knob(before, command.knob, command.value)
            if command.knob in EXECUTORS and knobs != before:
                self._check_available(command.knob)
                if command.knob == "parallelism":
                    if self.switching is None:
                        self.switching = f"{command.knob} to {command.value}"
                        return None
                    if self._scheduler.outstanding:
                        return None
                knobs = self._executor.apply(knobs)
            self.knobs = knobs
            self._scheduler.set_knobs(knobs)
            if knobs.parallelism != before.parallelism:
                recomputed, unfit = self._scheduler.recompute_all(limits_of(self._executor))
                self.unfit += unfit
        except (KnobError, OutOfMemory) as error:
            reason = str(error)
        self.switching = None
        self._asked.popleft()
        now_ns = self._clock.now_ns()
        return KnobReply(
            source=self._source,
            t_ns=now_ns,
            id=command.id,
            to=command.source,
            ok=not reason,
            reason=reason,
            knob=command.knob,
            applied=getattr(self.knobs, command.knob),
            took_ms=(now_ns - asked_ns) / 1e6,
            preempted=recomputed,
        )

    def _check_available(self, knob: KnobName) -> None:
        reason = self._executor.capabilities.unavailable.get(knob)
        if reason is not None:
            raise KnobError(f"{knob} is unavailable: {reason}")
