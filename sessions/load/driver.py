"""Drives a load over a channel until it is stopped; its concurrency or rate can be changed meanwhile."""

from __future__ import annotations

import itertools
import threading
import time
import uuid

import msgspec

from sessions.channel.interface import Channel, ChannelError
from sessions.load.accounts import Accounts
from sessions.load.generators import ClosedLoop, Generator, OpenLoop
from sessions.load.workload import LoadPoint, Workload
from sessions.messages import CancelRequests, LoadRequest, LoadState, Reply, SubmitRequests, TokenFrame

ANSWER_S = 10.0
TELL_EVERY_NS = 500_000_000
POLL_S = 0.5
BACK_OFF_NS = 250_000_000
"""How long no new request is sent after a refusal, so that a closed loop does not hammer an engine that refuses."""
LAST_ENDS_S = 5.0


class LoadDriver:
    """Sends the requests of `workload` at `point`. All that are due at an instant travel in one message."""

    def __init__(self, channel: Channel, workload: Workload, point: LoadPoint, vocab: int) -> None:
        """`vocab` is the size of the engine's vocabulary. Raise ValueError for a workload that cannot be built."""
        self.accounts = Accounts()
        self._channel = channel
        self._workload = workload
        self._vocab = vocab
        self._point = point
        self._name = f"load-{uuid.uuid4().hex[:8]}"
        self._lap = itertools.count()
        self._command_ids = itertools.count()
        self._not_before_ns = 0
        self._told_ns = 0
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._generator = self._start(point)
        self._description = workload.describe([point])

    def stop(self) -> None:
        """Make `run` end soon; callable from any thread and from a signal handler."""
        self._stop.set()
        self._wake.set()

    def run(self) -> Accounts:
        """Drive until stopped, or until a trace is over; then cancel what still runs. Raise ChannelError when the
        engine goes away."""
        tokens = self._channel.subscribe((TokenFrame,), capacity=65536)
        commands = self._channel.serve((LoadRequest,))
        tokens.on_arrival(self._wake.set)
        commands.on_arrival(self._wake.set)
        try:
            while not self._stop.is_set() and not self._over():
                self._submit_due()
                self._tell()
                self._wake.wait(self._patience_s())
                self._wake.clear()
                while (message := tokens.get(0.0)) is not None:
                    if isinstance(message, TokenFrame):
                        self._take(message)
                while (message := commands.get(0.0)) is not None:
                    if isinstance(message, LoadRequest):
                        self._change(message)
            self._cancel_rest()
            deadline = time.monotonic() + LAST_ENDS_S
            while self.accounts.live and (left := deadline - time.monotonic()) > 0:
                message = tokens.get(left)
                if isinstance(message, TokenFrame):
                    self._take(message)
        finally:
            tokens.close()
            commands.close()
        self._tell(always=True)
        return self.accounts

    def _start(self, point: LoadPoint) -> Generator:
        return self._workload.endless(point, f"{self._name}-{next(self._lap)}", self._vocab, time.monotonic_ns())

    def _over(self) -> bool:
        return not self.accounts.live and self._generator.draining and self._generator.next_due_ns() is None

    def _submit_due(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns < self._not_before_ns:
            return
        batch = [due.request for due in self._generator.due(now_ns)]
        if not batch:
            return
        self.accounts.submit(request.id for request in batch)
        reply = self._channel.request(
            SubmitRequests(source=self._channel.source, t_ns=now_ns, id=self._command_id(), requests=batch), ANSWER_S
        )
        if not reply.ok:
            for request in batch:
                self._ended(request.id, self.accounts.end(request.id, "refused", reply.reason))
            self._not_before_ns = time.monotonic_ns() + BACK_OFF_NS

    def _take(self, frame: TokenFrame) -> None:
        for request in self.accounts.take(frame):
            self._ended(request, True)
        if any(end.reason in ("refused", "failed") for end in frame.finished):
            self._not_before_ns = time.monotonic_ns() + BACK_OFF_NS

    def _ended(self, request: str, ours: bool) -> None:
        if ours:
            self._generator.finished(request, time.monotonic_ns())

    def _change(self, command: LoadRequest) -> None:
        now_ns = time.monotonic_ns()
        reason = ""
        if self._workload.source == "mooncake":
            reason = "a trace is being replayed: its arrivals are its own"
        elif (command.concurrency is None) == (command.rate is None):
            reason = "give either a concurrency or a rate"
        elif (command.concurrency or 0) < 0 or (command.rate or 0) < 0:
            reason = "concurrency and rate must not be negative"
        else:
            self._turn(command, now_ns)
            self._tell(always=True)
        self._channel.answer(
            command,
            Reply(
                source=self._channel.source, t_ns=now_ns, id=command.id, to=command.source, ok=not reason, reason=reason
            ),
        )

    def _turn(self, command: LoadRequest, now_ns: int) -> None:
        self._point = LoadPoint(command.concurrency, command.rate)
        match self._generator:
            case ClosedLoop() if command.concurrency is not None:
                self._generator.set_concurrency(command.concurrency)
            case OpenLoop() if command.rate is not None:
                self._generator.rate.change(now_ns, command.rate)
            case _:
                self._workload = msgspec.structs.replace(self._workload, ramp_s=0.0)
                self._generator = self._start(self._point)
        self._description = self._workload.describe([self._point])

    def _tell(self, always: bool = False) -> None:
        now_ns = time.monotonic_ns()
        if not always and now_ns - self._told_ns < TELL_EVERY_NS:
            return
        self._told_ns = now_ns
        self._channel.publish(
            LoadState(
                source=self._channel.source,
                t_ns=now_ns,
                description=self._description,
                concurrency=self._point.concurrency,
                rate=self._point.rate,
                submitted_total=self.accounts.submitted,
                finished_total=self.accounts.finished,
                cancelled_total=self.accounts.ends["cancelled"],
                refused_total=self.accounts.ends["refused"] + self.accounts.ends["failed"],
            )
        )

    def _patience_s(self) -> float:
        next_due_ns = self._generator.next_due_ns()
        if next_due_ns is None:
            return POLL_S
        wait_ns = max(next_due_ns, self._not_before_ns) - time.monotonic_ns()
        return min(POLL_S, max(0.0, wait_ns / 1e9))

    def _cancel_rest(self) -> None:
        if not self.accounts.live:
            return
        command = CancelRequests(
            source=self._channel.source,
            t_ns=time.monotonic_ns(),
            id=self._command_id(),
            requests=sorted(self.accounts.live),
        )
        if not self._channel.request(command, ANSWER_S).ok:
            raise ChannelError("the engine did not cancel the requests of the load")

    def _command_id(self) -> str:
        return f"{self._name}-{next(self._command_ids)}"
