"""Serves requests with the scheduler and a real executor, without the driver around them."""

from __future__ import annotations

import random
from collections.abc import Callable

from engine.config import EngineConfig
from engine.distributed import DistributedExecutor
from engine.scheduler.limits import Limits
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Scheduler
from sessions.knobs import Knobs
from sessions.messages import RequestSpec

PROMPTS, OUTPUT = 32, 64


def prompts(seed: int = 5) -> list[list[int]]:
    """32 prompts of 3 to 40 bytes."""
    draw = random.Random(seed)
    return [[draw.randrange(256) for _ in range(draw.randint(3, 40))] for _ in range(PROMPTS)]


class Served:
    """One executor, reused over many knob settings."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.executor = DistributedExecutor(config)
        self.knobs = config.knobs

    def generate(
        self,
        knobs: Knobs,
        requests: list[RequestSpec],
        *,
        token_budget: int = 64,
        kv_blocks: int | None = None,
        between: Callable[[int, Knobs], Knobs] | None = None,
    ) -> tuple[dict[str, list[int]], Scheduler]:
        """Every request's output tokens. `between` is asked before each plan for the knobs from now on."""
        self.turn(knobs)
        scheduler = Scheduler(knobs, self.limits(kv_blocks), token_budget=token_budget, run_ahead=self.config.run_ahead)
        live = [Request(spec, list(spec.prompt)) for spec in requests]
        for request in live:
            scheduler.add(request)
        done = 0
        while done < len(live):
            if between is not None:
                wanted = between(scheduler.steps_total, self.knobs)
                if (wanted.parallelism, wanted.cuda_graphs) != (self.knobs.parallelism, self.knobs.cuda_graphs):
                    switched = wanted.parallelism != self.knobs.parallelism
                    while scheduler.outstanding:
                        done += self._take(scheduler)
                    self.turn(wanted)
                    if switched:
                        scheduler.recompute_all(self.limits(kv_blocks))
                scheduler.set_knobs(wanted)
                self.knobs = wanted
            while (plan := scheduler.next_plan()) is not None:
                self.executor.submit(plan)
            done += self._take(scheduler)
        while scheduler.outstanding:
            self._take(scheduler)
        return {request.id: request.tokens[request.prompt_tokens :] for request in live}, scheduler

    def _take(self, scheduler: Scheduler) -> int:
        results = self.executor.collect(20.0)
        assert results or not scheduler.outstanding, "no result within 20 s"
        return sum(len(scheduler.complete(result).finished) for result in results)

    def turn(self, knobs: Knobs) -> None:
        self.knobs = self.executor.apply(knobs)

    def limits(self, kv_blocks: int | None) -> Limits:
        told = self.executor.capabilities
        return Limits(kv_blocks=kv_blocks or told.kv_blocks, block_size=told.block_size, max_context=told.max_context)
