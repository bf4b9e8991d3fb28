"""An executor for tests: stages of fixed speed whose tokens come from, and whose plans are checked by, a model."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from engine.config import EngineConfig
from engine.executor import Capabilities
from engine.plan import MicroBatchPlan, MicroBatchResult
from sessions.knobs import KnobError, KnobName, Knobs
from sessions.messages import ModelInfo, RankInfo, Span, StageFrame

from .scheduler.model import EOS, VOCAB, Workers


class VirtualClock:
    """Time that passes only when the executor lets it."""

    def __init__(self) -> None:
        self.ns = 1_000

    def now_ns(self) -> int:
        return self.ns


class PipelineExecutor:
    """`stages` stages of `stage_ns` each. With a VirtualClock `collect` moves the time on, without one it waits."""

    def __init__(
        self,
        config: EngineConfig,
        clock: VirtualClock | None = None,
        *,
        stages: int = 4,
        stage_ns: int = 1_000_000,
        max_run_ahead: int = 0,
        unavailable: dict[KnobName, str] | None = None,
        kv_blocks_under_ep: int | None = None,
    ) -> None:
        self.clock = clock
        self.config = config
        self.stages = stages
        self.stage_ns = stage_ns
        self.kv_blocks_under_ep = kv_blocks_under_ep
        self._knobs = config.knobs
        self.profiles: list[str] = []
        self.closed = False
        self.fail_on_submit: Callable[[], Exception] | None = None
        self._free = [0] * stages
        self._results: deque[MicroBatchResult] = deque()
        self._spans: list[tuple[int, int, int, MicroBatchPlan]] = []
        self._woken = threading.Event()
        self.capabilities = Capabilities(
            model=ModelInfo("model", "test", 4, 8, 4, 2, VOCAB, "float32"),
            ranks=[RankInfo(r, r, r, r + 1, "cpu", "host", 0) for r in range(stages)],
            stages=stages,
            kv_blocks=config.kv_blocks or 4096,
            block_size=config.block_size,
            max_context=config.max_context or 4096,
            eos=[EOS],
            device="cpu",
            unavailable={} if unavailable is None else unavailable,
            max_run_ahead=max_run_ahead,
        )
        self._start_workers()

    def submit(self, plan: MicroBatchPlan) -> None:
        if self.fail_on_submit is not None:
            raise self.fail_on_submit()
        self.workers.submit(plan)
        now = self._now()
        for stage in range(self.stages):
            now = max(now, self._free[stage])
            self._spans.append((stage, now, now + self.stage_ns, plan))
            now += self.stage_ns
            self._free[stage] = now
        result = self.workers.collect()
        assert result is not None
        self._results.append(msgspec.structs.replace(result, t_ns=now))

    def collect(self, timeout_s: float) -> list[MicroBatchResult]:
        until = self._now() + int(timeout_s * 1e9)
        if self._results:
            until = min(until, self._results[0].t_ns)
        self._wait_until(until)
        done = []
        while self._results and self._results[0].t_ns <= self._now():
            done.append(self._results.popleft())
        return done

    def wake(self) -> None:
        self._woken.set()

    def spans(self) -> list[StageFrame]:
        now, frames = self._now(), []
        for stage in range(self.stages):
            spans = [
                Span(
                    plan.slot, plan.step, len(plan.decode), plan.prefill_tokens, *(start - now,) * 3, *(end - now,) * 2
                )
                for at, start, end, plan in self._spans
                if at == stage and end <= now
            ]
            if spans:
                frames.append(StageFrame(source="", t_ns=now, stage=stage, rank=stage, window_ns=100, spans=spans))
        self._spans = [span for span in self._spans if span[2] > now]
        return frames

    def apply(self, knobs: Knobs) -> Knobs:
        if knobs.max_micro_batch == 13:
            raise KnobError("13 is not a number that this executor likes")
        if knobs.parallelism != self._knobs.parallelism:
            assert not self._results, "the parallelism is changed with nothing in flight"
            if self.kv_blocks_under_ep is not None:
                self.capabilities = msgspec.structs.replace(self.capabilities, kv_blocks=self.kv_blocks_under_ep)
            self._start_workers()
        self._knobs = knobs
        return knobs

    def profile(self, folder: str) -> None:
        self.profiles.append(folder)

    def end_profile(self, timeout_s: float) -> list[str]:
        return [f"{self.profiles[-1]}/rank{rank}.json" for rank in range(self.stages)]

    def close(self) -> None:
        self.closed = True

    def _start_workers(self) -> None:
        steps = self.workers.steps if hasattr(self, "workers") else 0
        self.workers = Workers(self.capabilities.kv_blocks, self.capabilities.block_size, self.config.max_running)
        self.workers.steps = steps

    def _now(self) -> int:
        return self.clock.ns if self.clock is not None else time.monotonic_ns()

    def _wait_until(self, ns: int) -> None:
        if self.clock is not None:
            self.clock.ns = max(self.clock.ns, ns)
            return
        self._woken.wait(max(0, ns - self._now()) / 1e9)
        self._woken.clear()
