"""Decides what runs when: visits the slots round-robin, submits their micro-batches and takes in the results.

Pure decisions, no clock and no threads: the same calls in the same order give the same plans.
"""

from __future__ import annotations

import msgspec

from engine.plan import MicroBatchPlan, MicroBatchResult
from engine.scheduler.admission import POLICIES, Load
from engine.scheduler.composer import Composer
from engine.scheduler.limits import Limits, too_long
from engine.scheduler.request import Request, State
from engine.scheduler.running import Running
from engine.scheduler.slots import Flight, Slot
from engine.scheduler.waiting import WaitingQueue
from sessions.knobs import Knobs
from sessions.messages import FinishReason, SlotSize, TokenEvent


class Completion(msgspec.Struct, frozen=True):
    """What one completed micro-batch brought: new tokens, and the requests that ended with it."""

    events: list[TokenEvent]
    finished: list[Request]


class Scheduler:
    """Requests in, plans out, results in. Never plans an empty micro-batch.

    token_budget: most prompt tokens in a micro-batch. max_running: rows of the workers' tables. run_ahead: steps that
    a slot may have submitted beyond the one whose tokens are not seen yet; they count as one micro-batch in flight.
    """

    def __init__(
        self, knobs: Knobs, limits: Limits, *, token_budget: int = 8192, max_running: int = 1024, run_ahead: int = 0
    ) -> None:
        self.limits = limits
        self.knobs = knobs
        self.token_budget = token_budget
        self.max_running = max_running
        self.run_ahead = run_ahead
        self.steps_total = 0
        self._arrivals = 0
        self._turn = 0
        self._pointer = 0
        self._flights: dict[int, Flight] = {}
        self._policy = POLICIES[knobs.admission]
        self.waiting = WaitingQueue()
        self.running = Running(limits, max_running, knobs.async_depth)
        self._composer = Composer(self.running, self.waiting)

    # --- requests ---------------------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request that can fit (see limits.refusal)."""
        self._arrivals += 1
        request.order = (request.spec.priority, self._arrivals)
        self.waiting.push(request)

    def cancel(self, request: Request, reason: FinishReason = "cancelled") -> None:
        """End a live request now; tokens of steps still outstanding are dropped."""
        was_waiting = request.state is State.WAITING
        request.state = State.FINISHED
        request.reason = reason
        if was_waiting:
            self.waiting.discard(request)
        else:
            self.running.leave(request)

    @property
    def live(self) -> int:
        """Requests that wait or run."""
        return len(self.waiting) + self.running.count

    @property
    def preempted_total(self) -> int:
        """Requests sent back to wait so far, each time counted."""
        return self._composer.preempted_total

    # --- micro-batches ------------------------------------------------------------------------------------------------

    @property
    def outstanding(self) -> int:
        """Steps submitted and not completed, run-ahead ones included."""
        return len(self._flights)

    @property
    def in_flight(self) -> int:
        """Micro-batches in flight: slots with outstanding steps."""
        running = self.running
        return sum([slot.busy for slot in running.slots], len(running.retired))

    def next_plan(self) -> MicroBatchPlan | None:
        """The next micro-batch to submit now, or None. Free slots come first, then the slot that may run ahead."""
        slots = self.running.slots
        if self.in_flight < len(slots):
            admissible = len(self.waiting) > 0 and self.running.fits(self.waiting.head())
            shared = admissible or self.running.pool.live > 0
            for slot in self._round():
                if not slot.outstanding and (shared or slot.live):
                    plan = self._plan(slot)
                    if plan is not None:
                        return plan
        if self.run_ahead and not self.running.starved:
            next_ahead = self._next_to_run_ahead()
            plan = self._plan(next_ahead) if next_ahead is not None else None
            if plan is not None:
                return plan
        if not self._flights and self.running.starved:
            return self._break_starvation()
        return None

    def complete(self, result: MicroBatchResult) -> Completion:
        """Take in the tokens of a step. Raise ValueError when it is not the oldest outstanding one of its slot."""
        flight = self._flights.get(result.step)
        if flight is None or flight.slot.outstanding[0] is not flight:
            raise ValueError(f"result of step {result.step}, which is not the oldest outstanding step of its slot")
        if len(result.tokens) != len(flight.sampled):
            raise ValueError(f"step {result.step} has {len(result.tokens)} tokens for {len(flight.sampled)} rows")
        slot = flight.slot
        del self._flights[result.step]
        slot.outstanding.popleft()
        events: list[TokenEvent] = []
        finished: list[Request] = []
        running = State.RUNNING
        for request, token in zip(flight.sampled, result.tokens, strict=True):
            if request.state is not running:
                continue  # ended while this step was outstanding: a surplus token
            tokens = request.tokens
            tokens.append(token)
            if request.reader is None:
                events.append(TokenEvent(request.id, [token]))
                if token not in request.stop_ids and len(tokens) != request.limit:
                    continue
                ended = self._end_reason(request, token, False)
            else:
                text, stopped = request.reader.push(token)
                ended = self._end_reason(request, token, stopped)
                if ended is not None and not stopped:
                    text += request.reader.rest()
                events.append(TokenEvent(request.id, [token], text))
            if ended is not None:
                request.state = State.FINISHED
                request.reason = ended
                self.running.leave(request)
                finished.append(request)
        self._settle(slot, result.step)
        return Completion(events, finished)

    def slot_sizes(self) -> list[SlotSize]:
        """Live requests of every slot, by what they do next."""
        return [SlotSize(len(s.decoding), len(s.prefilling), s.busy) for s in self.running.slots]

    def decode_counts(self) -> list[int]:
        """Live decode requests of every slot."""
        return [len(slot.decoding) for slot in self.running.slots]

    # --- changes while it runs ----------------------------------------------------------------------------------------

    def set_knobs(self, knobs: Knobs) -> None:
        """Put async_depth, admission and max_micro_batch in force; nothing is drained."""
        self.knobs = knobs
        self._policy = POLICIES[knobs.admission]
        self.running.resize(knobs.async_depth)
        self._pointer %= knobs.async_depth

    def recompute_all(self, limits: Limits) -> tuple[int, list[tuple[Request, str]]]:
        """Forget all rows and blocks, with nothing outstanding: every running request waits to be recomputed within the
        new limits. Return how many there were, and those ended ("failed") because they no longer fit, with why."""
        if self._flights:
            raise RuntimeError(f"{len(self._flights)} steps are outstanding")
        before = self.running
        recomputed = before.count
        for group in (before.pool, *before.slots):
            for request in [*group.decoding, *group.prefilling]:
                self._composer.preempt(request)
        self.limits = limits
        self.running = Running(limits, self.max_running, self.knobs.async_depth)
        preempted_total = self._composer.preempted_total
        self._composer = Composer(self.running, self.waiting)
        self._composer.preempted_total = preempted_total
        unfit: list[tuple[Request, str]] = []
        for request in self.waiting.requests():
            why = too_long(request.limit, limits)
            if why is not None:
                self.cancel(request, "failed")
                unfit.append((request, why))
        return recomputed, unfit

    # --- inside -------------------------------------------------------------------------------------------------------

    def _next_to_run_ahead(self) -> Slot | None:
        """The busy slot whose latest step was submitted first, if it may be a step further ahead.

        Stages run in the order of submission. A step that waits for its own slot's tokens holds up whatever was
        submitted behind it, so slots run ahead in turn, never one right behind itself while others are in flight.
        """
        running = self.running
        busy = [slot for slot in (*running.slots, *running.retired.values()) if slot.outstanding]
        if not busy:
            return None
        slot = min(busy, key=lambda each: each.outstanding[-1].step)
        may = len(slot.outstanding) <= self.run_ahead and slot.index not in running.retired
        return slot if may else None

    def _round(self) -> list[Slot]:
        slots = self.running.slots
        return slots[self._pointer :] + slots[: self._pointer] if self._pointer else slots

    def _plan(self, slot: Slot) -> MicroBatchPlan | None:
        running = self.running
        load = Load(
            slots=len(running.slots),
            live=min(self.live, self.max_running),
            decoding=running.decoding,
            prompt_tokens=self.waiting.tokens + running.prompt_tokens,
            turn=self._turn,
            max_micro_batch=self.knobs.max_micro_batch,
            token_budget=self.token_budget,
        )
        composed = self._composer.compose(slot, self._policy.quota(load), self.steps_total)
        if composed is None:
            if not slot.outstanding and not self._policy.pinned:
                slot.move_all(running.pool)
            return None
        plan, flight = composed
        if not slot.outstanding:
            self._turn += 1
        slot.outstanding.append(flight)
        self._flights[plan.step] = flight
        self.steps_total += 1
        self._pointer = (slot.index + 1) % len(running.slots)
        return plan

    def _break_starvation(self) -> MicroBatchPlan | None:
        """Nothing is in flight and nobody could get a block, because those that hold them are in no slot: send back the
        last of the starved until something can run."""
        while self.running.starved:
            self._composer.preempt(max(self.running.starved, key=lambda request: request.order))
            for slot in self._round():
                plan = self._plan(slot)
                if plan is not None:
                    return plan
        return None

    def _end_reason(self, request: Request, token: int, stopped: bool) -> FinishReason | None:
        if stopped or token in request.stop_ids:
            return "stop"
        return "length" if len(request.tokens) == request.limit else None

    def _settle(self, slot: Slot, step: int) -> None:
        """Free what ended requests held up to this step; take out the slot's requests if they are not pinned."""
        while slot.leaving and slot.leaving[0][0] <= step:
            self.running.release(slot.leaving.popleft()[1])
        if slot.outstanding:
            return
        retired = self.running.retired.pop(slot.index, None)
        if retired is not None or not self._policy.pinned:
            slot.move_all(self.running.pool)
