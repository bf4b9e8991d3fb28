"""What running one micro-batch leaves behind: its tokens, perhaps still on the device, and when things happened."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from queue import SimpleQueue

import msgspec
import torch
from torch import Tensor

from engine.plan import MicroBatchPlan
from engine.worker.marks import DeviceClock, Mark
from engine.worker_messages import Spans, ToDriver, Tokens
from sessions.messages import Span

SPAN_PERIOD_NS = 50_000_000


class Outcome(msgspec.Struct, frozen=True):
    """One micro-batch run (or only launched, on a GPU).

    tokens: on the rank that reports, the sampled tokens on the host (when `done`). taken_ns, launched_ns: host times
    when the plan was taken up and when everything was launched. received: the input's arrival; None on a single stage.
    """

    plan: MicroBatchPlan
    tokens: Tensor | None
    taken_ns: int
    launched_ns: int
    received: Mark | None
    start: Mark
    end: Mark
    graph: bool


class Reports:
    """Turns outcomes into Tokens and Spans for the driver, in the order of the micro-batches.

    On a GPU a thread waits for each outcome's end; the thread that launches never waits.
    """

    def __init__(self, send: Callable[[ToDriver], None], clock: DeviceClock, threaded: bool, telemetry: bool) -> None:
        self._send, self._clock, self._telemetry = send, clock, telemetry
        self._spans: list[tuple[MicroBatchPlan, bool, int, int, int, int, int, int]] = []
        self._spans_since = self._free_since = time.monotonic_ns()
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Outcome | None] | None = SimpleQueue() if threaded else None
        self._thread = threading.Thread(target=self._drain, name="reports", daemon=True) if threaded else None
        if self._thread is not None:
            self._thread.start()

    def add(self, outcome: Outcome) -> None:
        """Report this outcome once it is done."""
        if self._queue is not None:
            self._queue.put(outcome)
        else:
            self._report(outcome)

    def _drain(self) -> None:
        assert self._queue is not None
        try:
            while (outcome := self._queue.get()) is not None:
                assert isinstance(outcome.end, torch.cuda.Event)
                outcome.end.synchronize()
                self._report(outcome)
        except Exception:
            # A failed kernel shows here first; without this thread nobody would ever hear of a token again.
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def _report(self, outcome: Outcome) -> None:
        plan = outcome.plan
        end = self._clock.read_ns(outcome.end)
        if outcome.tokens is not None:
            self._send(Tokens(plan.step, plan.slot, outcome.tokens.tolist(), end))
        if not self._telemetry:
            return
        start = self._clock.read_ns(outcome.start)
        ready = outcome.taken_ns if outcome.received is None else self._clock.read_ns(outcome.received)
        with self._lock:
            wait = min(self._free_since, start)
            ready = min(max(ready, wait), start)
            launch = outcome.launched_ns - outcome.taken_ns
            self._spans.append((plan, outcome.graph, wait, ready, start, end, max(end, outcome.launched_ns), launch))
            self._free_since = end
        if end - self._spans_since > SPAN_PERIOD_NS:
            self.flush_spans()

    def flush_spans(self) -> None:
        """Send the spans finished so far, if any."""
        with self._lock:
            spans, self._spans = self._spans, []
            since, now = self._spans_since, time.monotonic_ns()
            if not spans:
                return
            self._spans_since = now
        packed = [
            Span(
                slot=plan.slot,
                step=plan.step,
                decode=len(plan.decode),
                prefill_tokens=plan.prefill_tokens,
                wait=wait - now,
                ready=ready - now,
                start=start - now,
                end=end - now,
                sent=sent - now,
                launch_ns=launch,
                graph=graph,
            )
            for plan, graph, wait, ready, start, end, sent, launch in spans
        ]
        self._send(Spans(now, now - since, packed, self._clock.residual_ns))

    def close(self) -> None:
        """Report what is done or becomes done, then end the thread."""
        if self._queue is not None and self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout=5)
        self.flush_spans()
