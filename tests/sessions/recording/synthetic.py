"""A session as a busy 8-GPU pipeline makes it: realistic jitter, ten frames a second."""

from __future__ import annotations

import random
from collections.abc import Iterator

from sessions.knobs import Knobs
from sessions.messages import (
    EngineState,
    GpuFrame,
    KnobState,
    Message,
    ModelInfo,
    QueueFrame,
    RankInfo,
    SessionHeader,
    SlotSize,
    Span,
    StageFrame,
)

TICK_NS = 100_000_000
START_NS = 5_000_000_000_000
WALL_NS = 1_790_000_000_000_000_000


def opening(source: str, stages: int) -> list[Message]:
    """What an engine says when it starts."""
    ranks = [RankInfo(n, n, n * 8, n * 8 + 8, f"cuda:{n}", "host", 1000 + n, f"GPU-{n:08x}") for n in range(stages)]
    model = ModelInfo("tiny", "Qwen3MoeForCausalLM", 61, 7168, 384, 8, 163_840, "bfloat16")
    return [
        SessionHeader(source=source, t_ns=START_NS, session="s1", wall_ns=WALL_NS, host="host"),
        EngineState(source=source, t_ns=START_NS, phase="ready", model=model, ranks=ranks, stages=stages),
        KnobState(source=source, t_ns=START_NS, knobs=Knobs(async_depth=8)),
    ]


class Herd:
    """Makes the messages of one tick after another; the same seed gives the same session."""

    def __init__(self, gpus: int = 8, stages: int = 8, spans_per_second: int = 200, seed: int = 0) -> None:
        self.source = "host-abcdef/engine/1"
        self._draw = random.Random(seed)
        self._gpus = gpus
        self._stages = stages
        self._per_frame = spans_per_second // 10
        self._sent = [START_NS] * stages
        self._steps = [0] * stages
        self._energy = [1e6] * gpus
        self._tokens = 0

    def tick(self, number: int) -> list[Message]:
        """All messages of tick `number` (from 0, in order)."""
        now = START_NS + (number + 1) * TICK_NS
        frames: list[Message] = [self._stage(now, stage) for stage in range(self._stages)]
        frames += [self._gpu(now, index) for index in range(self._gpus)]
        frames.append(self._queue(now))
        return frames

    def _stage(self, now: int, stage: int) -> StageFrame:
        draw, spans = self._draw, []
        mean = TICK_NS // max(1, self._per_frame)
        sent = max(self._sent[stage], now - TICK_NS)
        for _ in range(self._per_frame):
            wait = sent
            ready = wait + int(draw.expovariate(1 / (mean * 0.15)))
            start = ready + int(draw.gauss(22_000, 2_000))
            end = start + int(draw.gauss(mean * 0.75, mean * 0.01))
            sent = end + int(draw.gauss(35_000, 3_000))
            step = self._steps[stage]
            self._steps[stage] += 1
            times = [instant - now for instant in (wait, ready, start, end, sent)]
            spans.append(Span(step % 8, step, 4, 0, *times, int(draw.gauss(30_000, 2_000)), True))
        self._sent[stage] = sent
        return StageFrame(source=self.source, t_ns=now + draw.randrange(50_000), stage=stage, rank=stage,
                          window_ns=TICK_NS, spans=spans, clock_residual_ns=0)  # fmt: skip

    def _gpu(self, now: int, index: int) -> GpuFrame:
        draw = self._draw
        power = draw.randrange(180_000, 320_000) / 1000
        self._energy[index] += power / 10
        return GpuFrame(
            source="host-abcdef/probe/2", t_ns=now + draw.randrange(50_000), index=index, uuid=f"GPU-{index:08x}",
            name="NVIDIA RTX PRO 6000 Blackwell", power_watts=power, power_limit_watts=600.0,
            energy_joules_total=round(self._energy[index], 3), memory_used_bytes=88 << 30, memory_total_bytes=96 << 30,
            utilization_ratio=draw.randrange(60, 100) / 100, sm_clock_hertz=2_280_000_000.0,
            memory_clock_hertz=14_001_000_000.0, temperature_celsius=float(draw.randrange(55, 60)),
            pcie_rx_bytes_per_second=float(draw.randrange(10**6, 10**7)),
            pcie_tx_bytes_per_second=float(draw.randrange(10**6, 10**7)),
        )  # fmt: skip

    def _queue(self, now: int) -> QueueFrame:
        self._tokens += self._draw.randrange(20, 30)
        slots = [SlotSize(4, 0, True) for _ in range(8)]
        return QueueFrame(
            source=self.source, t_ns=now, waiting=self._draw.randrange(3), running=32, slots=slots, in_flight=8,
            kv_blocks_used=self._draw.randrange(800, 900), kv_blocks=4096, output_tokens_total=self._tokens,
            prompt_tokens_total=4096, steps_total=self._steps[0], waves_sum=self._steps[0] * 7.9,
            herd_samples=self._steps[0],
        )  # fmt: skip


def session(ticks: int, **shape: int) -> Iterator[tuple[int, list[Message]]]:
    """(arrival, messages) of every tick, the opening first."""
    herd = Herd(**shape)
    yield START_NS, opening(herd.source, shape.get("stages", 8))
    for number in range(ticks):
        yield START_NS + (number + 1) * TICK_NS, herd.tick(number)
