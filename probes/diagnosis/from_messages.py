"""Evidence from the messages of a session, live or recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median

import msgspec

from probes.diagnosis.evidence import Evidence, Parallelism, SlotSample, Source, StageSpan
from probes.diagnosis.power import gpu_powers
from probes.diagnosis.span_times import rank_times
from sessions.knobs import Knobs
from sessions.messages import (
    EngineState,
    GpuFrame,
    KnobState,
    Message,
    QueueFrame,
    RankInfo,
    StageFrame,
    TokenFrame,
)

_BLIND_SPANS = ["kernels inside a micro-batch (profile for that)"]
_BLIND_SLOTS = ["stages: their spans are off or were not recorded", "time inside a micro-batch"]
_BLIND_TOKENS = ["stages, slots, queues and GPUs: only the tokens' arrival was recorded"]


class Gathered(msgspec.Struct, kw_only=True):
    """Messages of one stretch between knob changes, sorted out."""

    engine: EngineState | None = None
    knobs: KnobState | None = None
    stage_frames: list[StageFrame] = msgspec.field(default_factory=list)
    queue_frames: list[QueueFrame] = msgspec.field(default_factory=list)
    token_frames: list[TokenFrame] = msgspec.field(default_factory=list)
    gpu_frames: list[GpuFrame] = msgspec.field(default_factory=list)

    def add(self, message: Message) -> None:
        """Keep what the diagnosis reads."""
        if isinstance(message, StageFrame):
            self.stage_frames.append(message)
        elif isinstance(message, QueueFrame):
            self.queue_frames.append(message)
        elif isinstance(message, TokenFrame):
            self.token_frames.append(message)
        elif isinstance(message, GpuFrame):
            self.gpu_frames.append(message)
        elif isinstance(message, EngineState):
            self.engine = message
        elif isinstance(message, KnobState):
            self.knobs = message

    def forget(self, before_ns: int) -> None:
        """Let go of frames from before an instant."""
        self.stage_frames = [frame for frame in self.stage_frames if frame.t_ns >= before_ns]
        self.queue_frames = [frame for frame in self.queue_frames if frame.t_ns >= before_ns]
        self.token_frames = [frame for frame in self.token_frames if frame.t_ns >= before_ns]
        self.gpu_frames = [frame for frame in self.gpu_frames if frame.t_ns >= before_ns]


def gather(messages: Iterable[Message]) -> Gathered:
    """Sort out the messages of one stretch."""
    gathered = Gathered()
    for message in messages:
        gathered.add(message)
    return gathered


def evidence_from_messages(gathered: Gathered, source: Source = "spans", stages: int | None = None) -> Evidence:
    """Everything that these messages tell. `stages` stands in where no engine state says how many there are."""
    engine = gathered.engine
    knobs = gathered.knobs.knobs if gathered.knobs is not None else None
    ranks = engine.ranks if engine is not None else []
    count = _stages(engine, gathered.stage_frames, stages)
    parallelism = _parallelism(knobs, count, ranks, stages)
    spans = _spans(gathered.stage_frames, launched=not ranks or any(not r.device.startswith("cpu") for r in ranks))
    slots = [_sample(frame) for frame in gathered.queue_frames if frame.slots]
    rate, driver = _rates(gathered.queue_frames)
    labels = {rank.rank: f"rank {rank.rank} on {rank.device}" for rank in ranks}
    times = rank_times(spans, count, parallelism, labels)
    only_tokens = not spans and not slots
    token_times, streams = _tokens(gathered.token_frames)
    running = [frame.running for frame in gathered.queue_frames if frame.running]
    if running:
        streams = round(fmean(running))
    return Evidence(
        source="tokens" if only_tokens else ("slots" if not spans else source),
        engine="herdscope",
        emulated=engine is not None and engine.emulated,
        stages=count,
        parallelism=parallelism,
        window=times[0].window if times else 0,
        ranks=times,
        spans=_one_rank_a_stage(spans) if parallelism == "pp" else spans,
        slots=slots,
        slot_count=knobs.async_depth if knobs is not None else (len(slots[-1].sizes) if slots else None),
        graphs=knobs.cuda_graphs if knobs is not None else None,
        tokens_per_s=rate,
        token_times=token_times,
        streams=streams,
        waiting=round(median(frame.waiting for frame in gathered.queue_frames)) if gathered.queue_frames else 0,
        hardware=engine.hardware if engine is not None else "",
        driver_s_per_step=driver,
        knobs=knobs,
        model=engine.model if engine is not None else None,
        layers={rank.stage: (rank.first_layer, rank.last_layer) for rank in ranks},
        gpus=gpu_powers(engine, gathered.gpu_frames),
        residual_ns=max((frame.clock_residual_ns for frame in gathered.stage_frames), default=None),
        cannot_see=_BLIND_TOKENS if only_tokens else (_BLIND_SPANS if spans else _BLIND_SLOTS),
    )


def _stages(engine: EngineState | None, frames: Sequence[StageFrame], stages: int | None) -> int:
    if stages is not None:
        return stages
    if engine is not None:
        return max(1, engine.stages)
    return max((frame.stage for frame in frames), default=0) + 1


def _parallelism(knobs: Knobs | None, stages: int, ranks: Sequence[RankInfo], told: int | None) -> Parallelism:
    if knobs is not None:
        return knobs.parallelism if len(ranks) != 1 else "pp"
    return "pp" if stages > 1 or told is not None else "unknown"


def _spans(frames: Sequence[StageFrame], launched: bool) -> list[StageSpan]:
    """Spans with absolute times. On a CPU (`launched` False) running is not launching."""
    return [
        StageSpan(
            stage=frame.stage,
            rank=frame.rank,
            step=span.step,
            slot=span.slot,
            decode=span.decode,
            prefill=span.prefill_tokens,
            wait=frame.t_ns + span.wait,
            ready=frame.t_ns + span.ready,
            start=frame.t_ns + span.start,
            end=frame.t_ns + span.end,
            sent=frame.t_ns + span.sent,
            launch=span.launch_ns if launched else 0,
            graph=span.graph,
        )
        for frame in frames
        for span in frame.spans
    ]


def _one_rank_a_stage(spans: Sequence[StageSpan]) -> list[StageSpan]:
    first: dict[int, int] = {}
    for span in spans:
        first[span.stage] = min(first.get(span.stage, span.rank), span.rank)
    return [span for span in spans if span.rank == first[span.stage]]


def _sample(frame: QueueFrame) -> SlotSample:
    return SlotSample(frame.t_ns, tuple(slot.decode for slot in frame.slots))


def _rates(frames: Sequence[QueueFrame]) -> tuple[float | None, float | None]:
    """(output tokens a second, driver seconds a micro-batch) between the first and the last frame with requests."""
    busy = [frame for frame in frames if frame.running]
    if len(busy) < 2:
        return None, None
    first, last = busy[0], busy[-1]
    seconds = (last.t_ns - first.t_ns) / 1e9
    steps = last.steps_total - first.steps_total
    rate = (last.output_tokens_total - first.output_tokens_total) / seconds if seconds > 0 else None
    driver = (last.driver_ns_total - first.driver_ns_total) / 1e9 / steps if steps > 0 else None
    return rate, driver


def _tokens(frames: Sequence[TokenFrame]) -> tuple[list[int], int]:
    """(instant of every output token, streams seen)."""
    times: list[int] = []
    streams: set[str] = set()
    for frame in frames:
        for event in frame.events:
            times += [frame.t_ns] * len(event.tokens)
            streams.add(event.request)
    return times, len(streams)
