"""An engine for the server's tests: answers on a real hub, a token a millisecond, no model behind it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from sessions.channel.interface import ChannelClosed
from sessions.channel.unix import UnixHub
from sessions.messages import (
    CancelRequests,
    EngineState,
    Finished,
    QueueFrame,
    Reply,
    RequestSpec,
    SlotSize,
    SubmitRequests,
    TokenEvent,
    TokenFrame,
)


class FakeEngine:
    """Each request gets `max_tokens` tokens "a", "b", ...; the prompt "refuse" is refused, "slow" stops after one,
    "mute" says nothing."""

    def __init__(self, path: Path) -> None:
        self.hub = UnixHub(path, "host-000001/engine/1", "engine")
        self.specs: list[RequestSpec] = []
        self.cancelled: list[str] = []
        self.live: dict[str, tuple[RequestSpec, int]] = {}
        self.hub.publish(EngineState(source=self.hub.source, t_ns=1, phase="ready", max_context=1024))
        self._commands = self.hub.serve([SubmitRequests, CancelRequests])
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                command = self._commands.get(0.001)
            except ChannelClosed:
                return
            if isinstance(command, SubmitRequests):
                for spec in command.requests:
                    self._admit(spec)
                self.hub.answer(command, self._reply(command.id, command.source))
            elif isinstance(command, CancelRequests):
                self.hub.answer(command, self._reply(command.id, command.source))
                for request in command.requests:
                    if self.live.pop(request, None):
                        self.cancelled.append(request)
            self._step()

    def _admit(self, spec: RequestSpec) -> None:
        self.specs.append(spec)
        if spec.prompt == "refuse":
            self._publish([], [Finished(spec.id, "refused", 0, 0, "too long: 2000 tokens, 1024 fit")])
        else:
            self.live[spec.id] = (spec, 0)

    def _step(self) -> None:
        events, finished = [], []
        for request, (spec, count) in list(self.live.items()):
            if spec.prompt == "mute" or (spec.prompt == "slow" and count):
                continue
            events.append(TokenEvent(request, [count], chr(ord("a") + count % 26)))
            self.live[request] = (spec, count + 1)
            if count + 1 >= spec.max_tokens:
                finished.append(Finished(request, "length", len(spec.prompt), count + 1))
                del self.live[request]
        if events:
            self._publish(events, finished)
            self.hub.publish(
                QueueFrame(source=self.hub.source, t_ns=time.monotonic_ns(), waiting=1, running=4,
                           slots=[SlotSize(3, 0, True), SlotSize(1, 0, False)], in_flight=1, kv_blocks_used=25,
                           kv_blocks=100, output_tokens_total=7, prompt_tokens_total=9)
            )  # fmt: skip

    def _publish(self, events: list[TokenEvent], finished: list[Finished]) -> None:
        self.hub.publish(TokenFrame(source=self.hub.source, t_ns=time.monotonic_ns(), events=events, finished=finished))

    def _reply(self, command_id: str, to: str) -> Reply:
        return Reply(source=self.hub.source, t_ns=time.monotonic_ns(), id=command_id, to=to, ok=True)
