"""What the driver and the scheduler cost per micro-batch, without workers. Aim: 150 us at C=32, 400 us at C=512."""

from __future__ import annotations

import statistics
import time
from collections import deque

import pytest

from engine.config import EngineConfig
from engine.core import EngineCore
from engine.executor import Capabilities
from engine.plan import MicroBatchPlan, MicroBatchResult
from sessions.clock import MonotonicClock
from sessions.codec import encode
from sessions.knobs import ADMISSIONS, Admission, Knobs
from sessions.messages import ModelInfo, RequestSpec, StageFrame, SubmitRequests

STEPS = 2000


class NoWorkers:
    """Answers every micro-batch at once, one a call."""

    def __init__(self, run_ahead: int) -> None:
        self.capabilities = Capabilities(
            model=ModelInfo("none", "none", 1, 1, 1, 1, 1000, "none"),
            ranks=[],
            stages=4,
            kv_blocks=200_000,
            block_size=16,
            max_context=0,
            eos=[999],
            device="none",
            max_run_ahead=run_ahead,
        )
        self._plans: deque[MicroBatchPlan] = deque()

    def submit(self, plan: MicroBatchPlan) -> None:
        self._plans.append(plan)

    def collect(self, timeout_s: float) -> list[MicroBatchResult]:
        plan = self._plans.popleft()
        tokens = [7] * (len(plan.decode) + sum(chunk.last for chunk in plan.prefill))
        return [MicroBatchResult(plan.step, plan.slot, tokens, time.monotonic_ns())]

    def spans(self) -> list[StageFrame]:
        return []


def cost_us(
    concurrency: int, admission: Admission, depth: int, most: int, run_ahead: int
) -> tuple[float, float, float]:
    """Median and p99 of a step's time in us, encoding of its messages included, and mean rows a micro-batch."""
    config = EngineConfig(
        model="none", knobs=Knobs(async_depth=depth, admission=admission, max_micro_batch=most), run_ahead=run_ahead
    )
    core = EngineCore(config, NoWorkers(run_ahead), MonotonicClock())  # type: ignore[arg-type]
    specs = [RequestSpec(f"bench-{i}", [i % 900] * 100, STEPS * 2) for i in range(concurrency)]
    core.handle(SubmitRequests(source="bench", t_ns=0, id="0", requests=specs))
    for _ in range(200):
        core.step(0.0)
    tokens = core.meter.output_tokens
    times = []
    for _ in range(STEPS):
        start = time.perf_counter_ns()
        for message in core.step(0.0):
            encode(message)
        times.append((time.perf_counter_ns() - start) / 1e3)
    times.sort()
    return statistics.median(times), times[int(len(times) * 0.99)], (core.meter.output_tokens - tokens) / STEPS


@pytest.mark.benchmark
@pytest.mark.timeout(600)
def test_driver_cost_per_micro_batch() -> None:
    print(
        f"\n{'C':>4} {'admission':<11} {'slots':>5} {'cap':>4} {'ahead':>5} {'rows':>6} {'median us':>10} {'p99 us':>8}"
    )
    worst = {32: 0.0, 512: 0.0}
    for concurrency in worst:
        for admission in ADMISSIONS:
            for depth, most, run_ahead in ((4, 256, 0), (4, 256, 1), (1, 512, 0)):
                median, p99, rows = cost_us(concurrency, admission, depth, most, run_ahead)
                worst[concurrency] = max(worst[concurrency], median)
                row = f"{concurrency:>4} {admission:<11} {depth:>5} {most:>4} {run_ahead:>5} {rows:>6.1f}"
                print(f"{row} {median:>10.1f} {p99:>8.1f}")
    print(f"worst median: C=32 {worst[32]:.1f} us (aim 150), C=512 {worst[512]:.1f} us (aim 400)")
