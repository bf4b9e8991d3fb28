"""A closed loop of requests over the real scheduler and the emulated executor, without a driver."""

from __future__ import annotations

from typing import NamedTuple

from engine.config import EngineConfig
from engine.emulated.clock import VirtualClock
from engine.emulated.cluster import Cluster
from engine.emulated.executor import SECOND_NS, EmulatedExecutor
from engine.scheduler.limits import Limits
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Scheduler
from sessions.knobs import Knobs
from sessions.messages import GpuFrame, RequestSpec, StageFrame


class Outcome(NamedTuple):
    """Steady output rate of the measured span, tokens of every request, and all frames."""

    tokens_per_s: float
    tokens: dict[str, list[int]]
    frames: list[StageFrame]
    gpus: list[GpuFrame]
    seconds: float


def closed_loop(
    knobs: Knobs,
    concurrency: int,
    *,
    output: int = 64,
    prompt: int = 8,
    hardware: str = "8x-rtx-pro-6000",
    model: str = "kimi-k2.6",
    ranks: int = 8,
    run_ahead: int = 0,
    cluster: Cluster | None = None,
) -> Outcome:
    """Run one burst of `concurrency` requests to its end; rate over the second half of the decode steps."""
    config = EngineConfig(model=model, emulate=hardware, pp=ranks, knobs=knobs, run_ahead=run_ahead)
    clock = VirtualClock(7 * SECOND_NS)
    executor = EmulatedExecutor(config, clock, cluster)
    able = executor.capabilities
    scheduler = Scheduler(knobs, Limits(kv_blocks=able.kv_blocks, block_size=able.block_size), run_ahead=run_ahead)
    for i in range(concurrency):
        spec = RequestSpec(id=f"r{i}", prompt=[i % 50 + 1] * prompt, max_tokens=output, seed=i, ignore_eos=True)
        scheduler.add(Request(spec, [i % 50 + 1] * prompt))
    tokens: dict[str, list[int]] = {}
    times: list[tuple[int, int]] = []
    while scheduler.live or scheduler.outstanding:
        while (plan := scheduler.next_plan()) is not None:
            executor.submit(plan)
        for result in executor.collect(60.0):
            completion = scheduler.complete(result)
            times.append((result.t_ns, len(completion.events)))
            for event in completion.events:
                tokens.setdefault(event.request, []).extend(event.tokens)
    frames, gpus = executor.spans(), executor.gpu_frames()
    executor.close()
    first, last = times[len(times) // 4][0], times[-1][0]
    made = sum(n for t, n in times if first < t <= last)
    return Outcome(
        made / ((last - first) / SECOND_NS), tokens, frames, gpus, (clock.now_ns() - 7 * SECOND_NS) / SECOND_NS
    )
