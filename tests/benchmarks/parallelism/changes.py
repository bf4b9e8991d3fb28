"""Knobs turned, and pipeline switched to expert parallelism and back, while requests run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from sessions.bench.channel_target import ChannelTarget
from sessions.bench.target import TargetLost
from sessions.knobs import KnobName, KnobValue
from sessions.load.generators import Generator
from sessions.load.lengths import Lengths
from sessions.load.workload import LoadPoint, Workload
from sessions.messages import GpuFrame, KnobReply, Message, TokenFrame
from tests.benchmarks.parallelism.session import Session, gpu_memory_bytes, peak_memory_bytes

POLL_NS = 50_000_000
DRAIN_S = 60.0
FIRST_TOKEN_S = 30.0


class Change(msgspec.Struct, frozen=True):
    """One turn of a knob under load. `to_token_ms`: from asking to the first token after the reply."""

    knob: str
    value: object
    ok: bool
    took_ms: float
    to_reply_ms: float
    to_token_ms: float | None
    recomputed: int
    reason: str


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """`lost`: submitted requests that got no end. Memory by GPU, in bytes."""

    changes: list[Change]
    submitted: int
    lost: int
    memory_before: dict[int, int]
    memory_peak: dict[int, int]
    memory_after: dict[int, int]


class ClosedLoop:
    """Keeps `concurrency` requests running in a thread of its own, until stopped; then lets them finish."""

    def __init__(self, session: Session, concurrency: int, prompt: int, output: int) -> None:
        self._target = ChannelTarget(session.channel)
        model = self._target.engine.model
        assert model is not None
        workload = Workload(prompt_tokens=Lengths(prompt, prompt), output_tokens=Lengths(output, output))
        now_ns = self._target.clock.now_ns()
        point = LoadPoint(concurrency=concurrency)
        self._generator: Generator = workload.endless(point, f"load-{now_ns}", model.vocab, now_ns)
        self.submitted = 0
        self.live: set[str] = set()
        self.tokens_at_ns = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Submit no more, and wait for the ends of all that run."""
        self._stop.set()
        self._thread.join(DRAIN_S + 10.0)

    def _run(self) -> None:
        try:
            self._keep_running()
        except TargetLost:
            return  # the requests still live are lost, and counted so

    def _keep_running(self) -> None:
        deadline = None
        while self.live or not self._stop.is_set():
            now_ns = self._target.clock.now_ns()
            if self._stop.is_set():
                deadline = deadline or time.monotonic() + DRAIN_S
                if time.monotonic() > deadline:
                    return
            else:
                batch = [due.request for due in self._generator.due(now_ns)]
                if batch:
                    self.submitted += len(batch)
                    self.live |= {request.id for request in batch}
                    self._target.submit(batch)
            for message in self._target.advance(now_ns + POLL_NS):
                self._take(message)

    def _take(self, message: Message) -> None:
        if isinstance(message, TokenFrame):
            if message.events:
                self.tokens_at_ns = message.t_ns
            for end in message.finished:
                self.live.discard(end.request)
                self._generator.finished(end.request, message.t_ns)


@contextmanager
def loaded(session: Session, concurrency: int, prompt: int, output: int) -> Iterator[ClosedLoop]:
    """A closed loop for the length of the block."""
    loop = ClosedLoop(session, concurrency, prompt, output)
    try:
        yield loop
    finally:
        loop.finish()


def under_load(
    session: Session,
    turns: Sequence[tuple[KnobName, KnobValue]],
    concurrency: int,
    prompt: int,
    output: int,
    settle_s: float,
) -> Changes:
    """Turn each knob in its turn, `settle_s` apart, with `concurrency` requests running."""
    readings = session.channel.subscribe((GpuFrame,), capacity=65536)
    changes = []
    try:
        with loaded(session, concurrency, prompt, output) as load:
            _await_token(load, 0)
            time.sleep(settle_s)
            before = gpu_memory_bytes()
            for knob, value in turns:
                changes.append(_turn(session, load, knob, value))
                time.sleep(settle_s)
        after = gpu_memory_bytes()
        return Changes(
            changes=changes,
            submitted=load.submitted,
            lost=len(load.live),
            memory_before=before,
            memory_peak=peak_memory_bytes(list(readings.drain())),
            memory_after=after,
        )
    finally:
        readings.close()


def _turn(session: Session, load: ClosedLoop, knob: KnobName, value: KnobValue) -> Change:
    asked_ns = time.monotonic_ns()
    reply: KnobReply = session.turn(knob, value)
    token_ns = _await_token(load, reply.t_ns)
    return Change(
        knob=knob,
        value=value,
        ok=reply.ok,
        took_ms=reply.took_ms,
        to_reply_ms=(reply.t_ns - asked_ns) / 1e6,
        to_token_ms=None if token_ns is None else (token_ns - asked_ns) / 1e6,
        recomputed=reply.preempted,
        reason=reply.reason,
    )


def _await_token(load: ClosedLoop, after_ns: int) -> int | None:
    deadline = time.monotonic() + FIRST_TOKEN_S
    while time.monotonic() < deadline:
        if load.tokens_at_ns > after_ns:
            return load.tokens_at_ns
        time.sleep(0.001)
    return None


def told(found: Changes) -> str:
    """The changes, a line each, and what became of requests and memory."""
    lines = []
    for each in found.changes:
        after = "none" if each.to_token_ms is None else f"{each.to_token_ms:.0f} ms"
        lines.append(
            f"{each.knob}={each.value}: {'ok' if each.ok else each.reason}, applied in {each.took_ms:.1f} ms, "
            f"reply after {each.to_reply_ms:.1f} ms, next token after {after}, {each.recomputed} recomputed"
        )
    gib = {
        name: [f"{value / 2**30:.2f}" for value in memory.values()]
        for name, memory in (
            ("before", found.memory_before),
            ("peak", found.memory_peak),
            ("after", found.memory_after),
        )
    }
    return "\n".join([*lines, f"{found.submitted} submitted, {found.lost} lost; GiB a GPU {gib}"])
