"""A very small engine behind a real channel: every live request gets one token each few milliseconds."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from sessions.channel.unix import UnixHub
from sessions.knobs import Knobs
from sessions.messages import (
    CancelRequests,
    EngineState,
    Fault,
    Finished,
    KnobReply,
    KnobRequest,
    KnobState,
    ModelInfo,
    QueueFrame,
    RankInfo,
    Reply,
    RequestSpec,
    SlotSize,
    Span,
    StageFrame,
    SubmitRequests,
    TokenEvent,
    TokenFrame,
)

MODEL = ModelInfo(
    name="small", architecture="none", layers=1, hidden=1, experts=1, experts_per_token=1, vocab=50, dtype="float32"
)


class SmallEngine:
    """Serves on `path` until closed. Prompts longer than `longest_prompt` are refused one by one; while `shut` is set
    whole submissions are. Records the size of every submission."""

    def __init__(self, path: Path, longest_prompt: int = 1000, step_s: float = 0.002) -> None:
        self.hub = UnixHub(path, "host-abc/engine/1", "engine")
        self.longest_prompt = longest_prompt
        self.step_s = step_s
        self.shut = threading.Event()
        self.submissions: list[int] = []
        self._live: dict[str, tuple[RequestSpec, int]] = {}
        self._done = threading.Event()
        self._totals = {"output_tokens_total": 0, "finished_total": 0, "cancelled_total": 0, "refused_total": 0}
        self.knobs = Knobs(async_depth=2)
        ranks = [RankInfo(rank=0, stage=0, first_layer=0, last_layer=1, device="cpu", host="h", pid=1)]
        self.publish(EngineState, phase="ready", model=MODEL, ranks=ranks, stages=1)
        self.publish(KnobState, knobs=self.knobs)
        self._commands = self.hub.serve((SubmitRequests, CancelRequests, KnobRequest))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def publish(self, kind, **fields) -> None:
        self.hub.publish(kind(source=self.hub.source, t_ns=time.monotonic_ns(), **fields))

    def fail(self) -> None:
        self.publish(Fault, what="rank 0 died", cause="signal SIGKILL")

    def close(self) -> None:
        self._done.set()
        self._thread.join(5)
        self.hub.close()

    def _run(self) -> None:
        while not self._done.is_set():
            for command in self._commands.drain():
                self._obey(command)
            self._step()
            time.sleep(self.step_s)

    def _obey(self, command) -> None:
        ends: list[Finished] = []
        extra: dict = {}
        kind, reason = Reply, ""
        match command:
            case SubmitRequests() if self.shut.is_set():
                reason = "the engine is switching"
            case SubmitRequests():
                self.submissions.append(len(command.requests))
                for request in command.requests:
                    if len(request.prompt) > self.longest_prompt:
                        ends.append(self._end(request.id, "refused", "prompt too long"))
                    else:
                        self._live[request.id] = (request, 0)
            case CancelRequests():
                ends = [self._end(name, "cancelled") for name in command.requests if self._live.pop(name, None)]
            case KnobRequest():
                self.knobs = Knobs(async_depth=int(command.value))
                self.publish(KnobState, knobs=self.knobs)
                kind, extra = KnobReply, {"knob": command.knob, "applied": command.value}
        if ends:
            self.publish(TokenFrame, events=[], finished=ends)
        reply = kind(
            source=self.hub.source, t_ns=time.monotonic_ns(), id=command.id, to=command.source, ok=not reason,
            reason=reason, **extra,
        )  # fmt: skip
        self.hub.answer(command, reply)

    def _end(self, name: str, reason, detail: str = "") -> Finished:
        self._totals["finished_total" if reason == "length" else f"{reason}_total"] += 1
        return Finished(request=name, reason=reason, prompt_tokens=1, output_tokens=1, detail=detail)

    def _step(self) -> None:
        events, ends = [], []
        for name, (request, position) in list(self._live.items()):
            events.append(TokenEvent(name, [(sum(request.prompt) + position) % MODEL.vocab]))
            self._live[name] = (request, position + 1)
            if position + 1 == request.max_tokens:
                del self._live[name]
                ends.append(self._end(name, "length"))
        self._totals["output_tokens_total"] += len(events)
        if events:
            self.publish(TokenFrame, events=events, finished=ends)
            span = Span(0, 0, len(events), 0, -5000, -4000, -1_000_000, 0, 0)
            self.publish(StageFrame, stage=0, rank=0, window_ns=10_000_000, spans=[span])
        slots = [SlotSize(decode=len(self._live), prefill=0, in_flight=True)]
        self.publish(
            QueueFrame, waiting=0, running=len(self._live), slots=slots, in_flight=1, kv_blocks_used=0, kv_blocks=1,
            prompt_tokens_total=0, **self._totals,
        )  # fmt: skip
