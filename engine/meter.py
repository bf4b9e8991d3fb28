"""What the engine core counts: totals over its life, herd sums, and the queue frame made of them."""

from __future__ import annotations

from collections import deque

from engine.scheduler.scheduler import Scheduler
from sessions import herd
from sessions.messages import FinishReason, QueueFrame

FRAME_NS = 100_000_000
"""Frames are published at 10 Hz."""
RATE_FRAMES = 20


class Meter:
    """Counters. `output_tokens` are tokens handed out; `prompt_tokens` those run in prefill, recomputed ones again."""

    def __init__(self) -> None:
        self.output_tokens = 0
        self.prompt_tokens = 0
        self.driver_ns = 0
        self.ended: dict[FinishReason, int] = {}
        self._herd_index_sum = 0.0
        self._waves_sum = 0.0
        self._herd_samples = 0
        self._recent: deque[tuple[int, int]] = deque(maxlen=RATE_FRAMES)

    def count_end(self, reason: FinishReason) -> None:
        """A request ended."""
        self.ended[reason] = self.ended.get(reason, 0) + 1

    def sample_herd(self, counts: list[int], stages: int) -> None:
        """Take the slots' decode requests at a scheduling instant."""
        index, waves = herd.herd_index(counts, stages).value, herd.waves(counts).value
        if index is not None and waves is not None:
            self._herd_index_sum += index
            self._waves_sum += waves
            self._herd_samples += 1

    def recent_rate(self, now_ns: int) -> float | None:
        """Output tokens a second over the last RATE_FRAMES frames; None before there are any."""
        if not self._recent or now_ns <= self._recent[0][0]:
            return None
        start_ns, tokens = self._recent[0]
        return (self.output_tokens - tokens) * 1e9 / (now_ns - start_ns)

    def frame(self, scheduler: Scheduler, source: str, now_ns: int) -> QueueFrame:
        """The queues now and the counters so far."""
        self._recent.append((now_ns, self.output_tokens))
        blocks = scheduler.running.blocks
        return QueueFrame(
            source=source,
            t_ns=now_ns,
            waiting=len(scheduler.waiting),
            running=scheduler.running.count,
            slots=scheduler.slot_sizes(),
            in_flight=scheduler.in_flight,
            kv_blocks_used=blocks.used,
            kv_blocks=blocks.count,
            output_tokens_total=self.output_tokens,
            prompt_tokens_total=self.prompt_tokens,
            finished_total=self.ended.get("length", 0) + self.ended.get("stop", 0),
            cancelled_total=self.ended.get("cancelled", 0),
            refused_total=self.ended.get("refused", 0),
            preempted_total=scheduler.preempted_total,
            steps_total=scheduler.steps_total,
            driver_ns_total=self.driver_ns,
            herd_index_sum=self._herd_index_sum,
            waves_sum=self._waves_sum,
            herd_samples=self._herd_samples,
        )
