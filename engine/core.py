"""The engine core: commands in, micro-batches to the executor and back, messages out.

One thread, no sockets, and no clock but the one it is given, so that the same core serves a live engine and a cluster
emulated in virtual time.
"""

from __future__ import annotations

import msgspec

from engine.config import EngineConfig
from engine.executor import Executor, MeasuresGpus
from engine.knob_turner import KnobTurner, limits_of
from engine.meter import FRAME_NS, Meter
from engine.plan import MicroBatchResult
from engine.profiling import Profiler
from engine.scheduler.limits import refusal
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Scheduler
from engine.text import TextCodec
from sessions.clock import Clock
from sessions.messages import (
    CancelRequests,
    Command,
    EngineState,
    Finished,
    FinishReason,
    KnobRequest,
    KnobState,
    Message,
    Phase,
    ProfileRequest,
    Reply,
    RequestSpec,
    SubmitRequests,
    TokenFrame,
)

NO_TEXT = "the engine has no tokenizer: send prompts as token ids, without stop strings"


class EngineCore:
    """Drives one executor. `handle` commands, call `step` again and again, and send on what it returns.

    text: the checkpoint's tokenizer; without it text prompts and stop strings are refused with the reason `no_text`.
    Tokens are turned into text only for requests that came as text or have stop strings.
    """

    def __init__(
        self,
        config: EngineConfig,
        executor: Executor,
        clock: Clock,
        *,
        source: str = "engine",
        text: TextCodec | None = None,
        no_text: str = NO_TEXT,
    ) -> None:
        self.config = config
        self.source = source
        self.executor = executor
        self.meter = Meter()
        self.scheduler = Scheduler(
            config.knobs, limits_of(executor), token_budget=config.token_budget, max_running=config.max_running
        )
        self._clock = clock
        self._text = text
        self._no_text = no_text
        self._requests: dict[str, Request] = {}
        self._outbox: list[Message] = []
        self._turner = KnobTurner(config.knobs, executor, self.scheduler, clock, source)
        self._profiler = Profiler(executor, self.meter, clock, source)
        self._next_frame_ns = clock.now_ns()
        self._set_run_ahead()

    # --- commands ---------------------------------------------------------------------------------------------------

    def handle(self, command: Command) -> None:
        """Take in a command; its reply comes out of a following step."""
        match command:
            case SubmitRequests():
                self._submit_requests(command)
            case CancelRequests():
                named = [self._requests[name] for name in dict.fromkeys(command.requests) if name in self._requests]
                self._cancel(named if command.requests else self._asked_by(command.source))
                self._reply(command)
            case KnobRequest():
                self._turner.ask(command)
            case ProfileRequest():
                reply = self._profiler.start(command)
                if reply is not None:
                    self._outbox.append(reply)
            case _:
                self._reply(command, f"the engine does not answer {type(command).__name__}")

    def abandon(self, asker: str) -> None:
        """Cancel all requests of an asker that is gone."""
        self._cancel(self._asked_by(asker))

    def end_all(self, reason: FinishReason, detail: str) -> list[Message]:
        """End every live request, because the engine stops or has failed; return the messages that say so."""
        for request in list(self._requests.values()):
            self.scheduler.cancel(request, reason)
        self._say_ended([self._forget(request, detail) for request in list(self._requests.values())])
        outbox, self._outbox = self._outbox, []
        return outbox

    # --- the loop -----------------------------------------------------------------------------------------------------

    def step(self, max_wait_s: float) -> list[Message]:
        """Submit what may be submitted, wait up to `max_wait_s` for results (less when a frame is due, or when there is
        something to say), take them in, and return the messages to publish, oldest first. Raise WorkerDied."""
        self._turn_knobs()
        started_ns = self._clock.now_ns()
        self._submit()
        waiting_ns = self._clock.now_ns()
        until_frame_s = max(0, self._next_frame_ns - waiting_ns) / 1e9
        results = self.executor.collect(0.0 if self._outbox else min(max_wait_s, until_frame_s))
        waited_ns = self._clock.now_ns()
        for result in results:
            self._take(result)
        if results:
            self._submit()
        traces = self._profiler.completed(len(results))
        if traces is not None:
            self._outbox.append(traces)
        now_ns = self._clock.now_ns()
        if now_ns >= self._next_frame_ns:
            self._frames(now_ns)
        self.meter.driver_ns += (waiting_ns - started_ns) + (self._clock.now_ns() - waited_ns)
        outbox, self._outbox = self._outbox, []
        return outbox

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do before the next command."""
        return not (self.scheduler.live or self.scheduler.outstanding or self._turner.waiting or self._outbox)

    def state(self, phase: Phase, detail: str = "") -> EngineState:
        """The engine's state message, as of now."""
        can = self.executor.capabilities
        return EngineState(
            source=self.source,
            t_ns=self._clock.now_ns(),
            phase=phase,
            detail=detail,
            model=can.model,
            ranks=can.ranks,
            stages=can.stages,
            kv_blocks=can.kv_blocks,
            block_size=can.block_size,
            max_context=can.max_context,
            emulated=can.emulated,
            hardware=can.hardware,
        )

    def knob_state(self) -> KnobState:
        """Every knob's value now."""
        return KnobState(
            source=self.source,
            t_ns=self._clock.now_ns(),
            knobs=self._turner.knobs,
            unavailable=self.executor.capabilities.unavailable,
            token_budget=self.config.token_budget,
        )

    # --- requests -----------------------------------------------------------------------------------------------------

    def _submit_requests(self, command: SubmitRequests) -> None:
        seen = set(self._requests)
        for spec in command.requests:
            if spec.id in seen:
                self._reply(command, f"request id {spec.id} is in use: an id names one live request of the engine")
                return
            seen.add(spec.id)
        refused = [end for spec in command.requests if (end := self._admit(spec, command.source)) is not None]
        self._say_ended(refused)  # before the reply: who has that knows what was refused
        self._reply(command)

    def _admit(self, spec: RequestSpec, asker: str) -> Finished | None:
        """Queue a request, or return its refusal."""
        reader = None
        if isinstance(spec.prompt, str) or spec.stop:
            if self._text is None:
                return Finished(spec.id, "refused", 0, 0, self._no_text)
            reader = self._text.reader(spec.stop)
            prompt = self._text.encode(spec.prompt) if isinstance(spec.prompt, str) else spec.prompt
        else:
            prompt = spec.prompt
        limits = self.scheduler.limits
        why = refusal(spec, prompt, limits)
        if why is not None:
            return Finished(spec.id, "refused", len(prompt), 0, why)
        stop_ids: frozenset[int] = frozenset() if spec.ignore_eos else limits.eos
        request = Request(spec, prompt, stop_ids, asker, reader)
        self._requests[spec.id] = request
        self.scheduler.add(request)
        return None

    def _asked_by(self, asker: str) -> list[Request]:
        return [request for request in self._requests.values() if request.asker == asker]

    def _cancel(self, requests: list[Request]) -> None:
        for request in requests:
            self.scheduler.cancel(request)
        self._say_ended([self._forget(request) for request in requests])

    def _forget(self, request: Request, detail: str = "") -> Finished:
        del self._requests[request.id]
        reason = request.reason or "failed"
        return Finished(request.id, reason, request.prompt_tokens, request.output_tokens, detail)

    def _say_ended(self, ended: list[Finished]) -> None:
        for end in ended:
            self.meter.count_end(end.reason)
        if ended:
            frame = TokenFrame(source=self.source, t_ns=self._clock.now_ns(), events=[], finished=ended)
            self._outbox.append(frame)

    # --- micro-batches ------------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        if self._turner.switching is not None:
            return
        scheduler, submitted = self.scheduler, False
        while (plan := scheduler.next_plan()) is not None:
            self.executor.submit(plan)
            self.meter.prompt_tokens += plan.prefill_tokens
            submitted = True
        if submitted:
            self.meter.sample_herd(scheduler.decode_counts(), self.executor.capabilities.stages)

    def _take(self, result: MicroBatchResult) -> None:
        completion = self.scheduler.complete(result)
        if not completion.events:
            return
        self.meter.output_tokens += len(completion.events)
        ended = [self._forget(request) for request in completion.finished]
        for end in ended:
            self.meter.count_end(end.reason)
        frame = TokenFrame(source=self.source, t_ns=result.t_ns, events=completion.events, finished=ended)
        self._outbox.append(frame)

    def _frames(self, now_ns: int) -> None:
        self._next_frame_ns = max(self._next_frame_ns + FRAME_NS, now_ns + FRAME_NS // 2)
        self._outbox.append(self.meter.frame(self.scheduler, self.source, now_ns))
        for frame in self.executor.spans():
            self._outbox.append(msgspec.structs.replace(frame, source=self.source))
        if isinstance(self.executor, MeasuresGpus):
            for gpu in self.executor.gpu_frames():
                self._outbox.append(msgspec.structs.replace(gpu, source=self.source))

    # --- knobs and replies --------------------------------------------------------------------------------------------

    def _turn_knobs(self) -> None:
        turner = self._turner
        was_switching = turner.switching is not None
        while (reply := turner.turn()) is not None:
            self._set_run_ahead()
            self._outbox.append(reply)
            if was_switching:
                self._outbox.append(self.state("ready"))
                was_switching = False
            if reply.ok:
                self._outbox.append(self.knob_state())
        if turner.unfit:
            self._say_ended([self._forget(request, why) for request, why in turner.unfit])
            turner.unfit.clear()
        if turner.switching is not None and not was_switching:
            self._outbox.append(self.state("switching", turner.switching))

    def _set_run_ahead(self) -> None:
        self.scheduler.run_ahead = min(self.config.run_ahead, self.executor.capabilities.max_run_ahead)

    def _reply(self, command: Command, reason: str = "") -> None:
        self._outbox.append(
            Reply(
                source=self.source,
                t_ns=self._clock.now_ns(),
                id=command.id,
                to=command.source,
                ok=not reason,
                reason=reason,
            )
        )
