"""A synthetic feed: what an engine on p stages tells in a herd, and evenly spread. Its time is made up."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from sessions.knobs import Knobs
from sessions.messages import (
    EngineState,
    GpuFrame,
    HostFrame,
    KnobState,
    LoadState,
    LogLine,
    LogLines,
    Message,
    ModelInfo,
    ProcessSample,
    QueueFrame,
    RankInfo,
    SessionHeader,
    SlotSize,
    Span,
    StageFrame,
)

SOURCE = "host-abc123/engine/1"
MS = 1_000_000
TICK = 100 * MS
WALL = 1_790_000_000_000_000_000


@dataclass
class Feed:
    """`slots` holds the decode requests of each slot; stage time is base_ms + per_request_ms * n."""

    stages: int = 8
    slots: tuple[int, ...] = (16, 0, 0, 0, 0, 0, 0, 0)
    gpus: int = 8
    base_ms: float = 6.0
    per_request_ms: float = 1.0
    hop_ms: float = 0.4
    watts: float = 88.0
    ep: bool = False
    emulated: bool = False
    start_ns: int = 1_000_000 * MS
    knobs: Knobs | None = None
    tokens: int = field(default=0, init=False)
    steps: int = field(default=0, init=False)

    def opening(self) -> list[Message]:
        """What a console is told when it joins."""
        layers = 61
        cuts = [layers * i // self.stages for i in range(self.stages + 1)]
        device = "cuda" if self.gpus else "cpu"
        ranks = [
            RankInfo(
                r,
                0 if self.ep else r,
                0 if self.ep else cuts[r],
                layers if self.ep else cuts[r + 1],
                f"{device}:{r}",
                "host",
                4000 + r,
            )
            for r in range(self.stages)
        ]
        model = ModelInfo("kimi-k2.6", "DeepseekV3", layers, 7168, 384, 8, 163840, "bfloat16")
        unavailable = {} if self.gpus else {"cuda_graphs": "no CUDA device", "parallelism": "not built yet"}
        knobs = self.knobs or Knobs(async_depth=len(self.slots), admission="greedy", max_micro_batch=16)
        at = {"source": SOURCE, "t_ns": self.start_ns}
        return [
            SessionHeader(**at, session="s1", wall_ns=WALL, host="host", emulated=self.emulated),
            EngineState(
                **at,
                phase="ready",
                model=model,
                ranks=ranks,
                stages=1 if self.ep else self.stages,
                kv_blocks=4096,
                block_size=16,
                max_context=8192,
                emulated=self.emulated,
                hardware="8x RTX PRO 6000" if self.emulated else "",
            ),
            KnobState(**at, knobs=knobs, unavailable=unavailable, token_budget=8192),
            LoadState(**at, description="closed loop", concurrency=sum(self.slots)),
            LogLines(
                **at,
                lines=[
                    LogLine(self.start_ns + r, r, f"layers {cuts[r]}-{cuts[r + 1] - 1} loaded")
                    for r in range(self.stages)
                ],
            ),
        ]

    def frames(self, seconds: float) -> Iterator[tuple[int, list[Message]]]:
        """(time, messages) of every tick of 100 ms."""
        spans: dict[int, list[tuple[int, int, int, int, int]]] = {r: [] for r in range(self.stages)}
        free = [self.start_ns] * self.stages
        queue = [(self.start_ns + i * MS, i, 0) for i, n in enumerate(self.slots) if n]
        heapq.heapify(queue)
        pending: list[tuple[int, int]] = []
        steps = dict.fromkeys(range(len(self.slots)), 0)
        for tick in range(1, int(seconds * 10) + 1):
            now = self.start_ns + tick * TICK
            while queue and queue[0][0] <= now:
                ready, slot, stage = heapq.heappop(queue)
                n = self.slots[slot]
                length = int((self.base_ms + self.per_request_ms * n) * MS * (1.3 if stage == self.stages - 1 else 1.0))
                begin = max(ready, free[stage])
                end = begin + length
                free[stage] = end
                spans[stage].append((slot, steps[slot], begin, end, n))
                if stage + 1 < self.stages:
                    heapq.heappush(queue, (end + int(self.hop_ms * MS), slot, stage + 1))
                else:
                    steps[slot] += 1
                    pending.append((end, n))
                    heapq.heappush(queue, (end + MS // 2, slot, 0))
            self.tokens += sum(n for end, n in pending if end <= now)
            pending = [(end, n) for end, n in pending if end > now]
            yield now, self._tick(now, spans)

    def _tick(self, now: int, spans: dict[int, list[tuple[int, int, int, int, int]]]) -> list[Message]:
        messages: list[Message] = []
        busy = {}
        for rank, pending in spans.items():
            done = [s for s in pending if s[3] <= now]
            spans[rank] = [s for s in pending if s[3] > now]
            busy[rank] = min(1.0, sum(s[3] - s[2] for s in done) / TICK)
            frame = [
                Span(slot, step, n, 0, b - now - MS, b - now, b - now + MS // 5, e - now, e - now + MS // 10, MS, True)
                for slot, step, b, e, n in done
            ]
            messages.append(
                StageFrame(
                    source=SOURCE, t_ns=now, stage=0 if self.ep else rank, rank=rank, window_ns=TICK, spans=frame
                )
            )
        live = sum(self.slots)
        messages.append(
            QueueFrame(
                source=SOURCE,
                t_ns=now,
                waiting=3,
                running=live,
                slots=[SlotSize(n, 0, n > 0) for n in self.slots],
                in_flight=sum(n > 0 for n in self.slots),
                kv_blocks_used=live * 20,
                kv_blocks=4096,
                output_tokens_total=self.tokens,
                prompt_tokens_total=self.tokens // 2,
                finished_total=self.tokens // 64,
            )
        )
        messages += [self._gpu(i, now) for i in range(self.gpus)]
        messages.append(
            HostFrame(
                source="host-abc123/console/2",
                t_ns=now,
                host="host",
                cpu_ratio=0.4,
                cores=32,
                load=3.2,
                memory_used_bytes=30 << 30,
                memory_total_bytes=256 << 30,
                processes=[
                    ProcessSample(4000 + r, "worker", r, 0.5 + 0.05 * (r % 8), 700 << 20) for r in range(self.stages)
                ]
                + [ProcessSample(3999, "driver", None, 0.3, 120 << 20)],
            )
        )
        return messages

    def _gpu(self, i: int, now: int) -> GpuFrame:
        return GpuFrame(
            source="host-abc123/console/2",
            t_ns=now,
            index=i,
            uuid=f"GPU-{i}",
            name="RTX PRO 6000",
            power_watts=self.watts + 5 * ((i * 7 + now // TICK) % 4),
            power_limit_watts=600.0,
            memory_used_bytes=78 << 30,
            memory_total_bytes=96 << 30,
            utilization_ratio=0.97 if i == 0 else 0.3,
            sm_clock_hertz=2.1e9,
            temperature_celsius=41.0 + i % 5,
            emulated=self.emulated,
        )


def herd(**more: object) -> Feed:
    """All requests in one slot: a diagonal of one colour, the rest bubble."""
    return Feed(**more)  # type: ignore[arg-type]


def balanced(**more: object) -> Feed:
    """Two requests in each of eight slots."""
    return Feed(slots=(2,) * 8, watts=290.0, knobs=Knobs(8, "rebalance", 16, True), **more)  # type: ignore[arg-type]
