"""A target in virtual time whose every latency is known: a pipeline of `stages` stages of `tau_ns` each, with one
micro-batch that holds every request (a herd), or one micro-batch a request (even)."""

from __future__ import annotations

from collections.abc import Sequence

from sessions.knobs import Knobs
from sessions.messages import (
    EngineState,
    Finished,
    GpuFrame,
    KnobReply,
    KnobState,
    Message,
    ModelInfo,
    QueueFrame,
    RankInfo,
    RequestSpec,
    SlotSize,
    Span,
    StageFrame,
    TokenEvent,
    TokenFrame,
)

SOURCE = "virtual/engine/1"
FRAME_NS = 100_000_000


class VirtualClock:
    def __init__(self) -> None:
        self.ns = 1_000

    def now_ns(self) -> int:
        return self.ns


class VirtualTarget:
    """Every cycle of `cycle_ns` each live request gets one token; a new request waits for the next cycle."""

    def __init__(self, cycle_ns: int = 10_000_000, stages: int = 4, herd: bool = True, watts: float | None = None):
        self.clock = VirtualClock()
        self.cycle_ns = cycle_ns
        self.stages = stages
        self.herd = herd
        self.watts = watts
        self.refuse = ""
        self.live: dict[str, tuple[RequestSpec, int]] = {}
        self.next_cycle = 0
        self.next_frame = 0
        self.sums = [0.0, 0.0, 0]
        self.totals = {"output_tokens_total": 0, "finished_total": 0}
        self.turned: list[tuple[str, object]] = []
        model = ModelInfo(
            name="v", architecture="v", layers=4, hidden=1, experts=1, experts_per_token=1, vocab=64, dtype="f"
        )
        ranks = [
            RankInfo(rank=r, stage=r, first_layer=r, last_layer=r + 1, device="v", host="v", pid=1)
            for r in range(stages)
        ]
        self.engine = EngineState(source=SOURCE, t_ns=0, phase="ready", model=model, ranks=ranks, stages=stages)
        self.knobs = KnobState(source=SOURCE, t_ns=0, knobs=Knobs())

    def submit(self, requests: Sequence[RequestSpec]) -> str:
        if self.refuse:
            return self.refuse
        if not self.live:
            self.next_cycle = self.clock.ns + self.cycle_ns
        for request in requests:
            self.live[request.id] = (request, 0)
        return ""

    def cancel(self, requests: Sequence[str]) -> None:
        for name in requests:
            self.live.pop(name, None)

    def turn(self, knob, value) -> KnobReply:
        self.turned.append((knob, value))
        return KnobReply(source=SOURCE, t_ns=0, id="1", to="b", ok=True, knob=knob, applied=value)

    def advance(self, until_ns: int) -> list[Message]:
        due = min(self.next_cycle if self.live else until_ns, self.next_frame, until_ns)
        self.clock.ns = max(self.clock.ns, due)
        messages: list[Message] = []
        if self.live and self.clock.ns >= self.next_cycle:
            messages += self._cycle()
        if self.clock.ns >= self.next_frame:
            messages += self._frames()
            self.next_frame = self.clock.ns + FRAME_NS
        return messages

    def _cycle(self) -> list[Message]:
        now = self.next_cycle
        self.next_cycle += self.cycle_ns
        events, ends = [], []
        count = len(self.live)
        for name, (request, done) in list(self.live.items()):
            events.append(TokenEvent(name, [(request.seed + done) % 64]))
            self.live[name] = (request, done + 1)
            if done + 1 == request.max_tokens:
                del self.live[name]
                ends.append(Finished(request=name, reason="length", prompt_tokens=1, output_tokens=done + 1))
        self.sums[0] += 1.0 if self.herd else 0.0
        self.sums[1] += 1.0 if self.herd else float(count)
        self.sums[2] += 1
        self.totals["output_tokens_total"] += count
        self.totals["finished_total"] += len(ends)
        spans = [Span(0, 0, count, 0, 0, 0, -self.cycle_ns // 4, 0, 0)]
        frames: list[Message] = [
            StageFrame(source=SOURCE, t_ns=now, stage=s, rank=s, window_ns=FRAME_NS, spans=spans)
            for s in range(self.stages)
        ]
        return [TokenFrame(source=SOURCE, t_ns=now, events=events, finished=ends), *frames]

    def _frames(self) -> list[Message]:
        queue = QueueFrame(
            source=SOURCE, t_ns=self.clock.ns, waiting=3, running=len(self.live),
            slots=[SlotSize(decode=len(self.live), prefill=0, in_flight=True)], in_flight=1, kv_blocks_used=0,
            kv_blocks=1, prompt_tokens_total=0, herd_index_sum=self.sums[0], waves_sum=self.sums[1],
            herd_samples=self.sums[2], **self.totals,
        )  # fmt: skip
        gpus = [
            GpuFrame(
                source=SOURCE, t_ns=self.clock.ns, index=i, uuid=str(i), name="G", power_watts=self.watts * (i + 1)
            )
            for i in range(2)
            if self.watts is not None
        ]
        return [queue, *gpus]
