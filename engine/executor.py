"""The one seam between the scheduler and hardware: submit micro-batches, collect their tokens.

Two implementations: the distributed workers (engine/distributed.py) and the emulated cluster (engine/emulated).
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec

from engine.plan import MicroBatchPlan, MicroBatchResult
from sessions.knobs import KnobName, Knobs
from sessions.messages import GpuFrame, ModelInfo, RankInfo, StageFrame


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an executor can do, known once it is ready.

    unavailable: for each knob that cannot be turned here, the reason. eos: token ids that end a sequence.
    max_run_ahead: decode steps of one slot that may be submitted before the driver has seen the previous one's tokens.
    """

    model: ModelInfo
    ranks: list[RankInfo]
    stages: int
    kv_blocks: int
    block_size: int
    max_context: int
    eos: list[int]
    device: str
    unavailable: dict[KnobName, str] = {}
    max_run_ahead: int = 0
    emulated: bool = False
    hardware: str = ""


class WorkerDied(RuntimeError):
    """A rank is gone. The executor is of no more use; the engine must be restarted."""

    def __init__(self, rank: int, cause: str, exit_code: int | None, signal: str | None, last_log: list[str]) -> None:
        super().__init__(f"rank {rank} died: {cause}")
        self.rank = rank
        self.cause = cause
        self.exit_code = exit_code
        self.signal = signal
        self.last_log = last_log


class Executor(Protocol):
    """Runs micro-batches on `capabilities.stages` stages, each in the order of submission. One thread uses it."""

    @property
    def capabilities(self) -> Capabilities: ...

    def submit(self, plan: MicroBatchPlan) -> None:
        """Hand a micro-batch to the first stage; returns without waiting for it. Raise WorkerDied."""
        ...

    def collect(self, timeout_s: float) -> list[MicroBatchResult]:
        """Micro-batches completed since the last call, oldest first; waits up to `timeout_s` for the first one and
        returns early when `wake` is called. Raise WorkerDied."""
        ...

    def wake(self) -> None:
        """Make a waiting `collect` return now; callable from any thread and from signal handlers."""
        ...

    def spans(self) -> list[StageFrame]:
        """Stage spans finished since the last call. A frame's `t_ns` is an instant of the driver's clock, and its spans
        are relative to it; the engine core sets `source` alone."""
        ...

    def apply(self, knobs: Knobs) -> Knobs:
        """Make cuda_graphs and parallelism so, for micro-batches submitted from now on. A change of parallelism needs
        that nothing is in flight; after it `capabilities` may be new and every row is forgotten. Returns what is in
        force; raises KnobError (refused, nothing changed), OutOfMemory (likewise) or WorkerDied."""
        ...

    def profile(self, folder: str) -> None:
        """Start torch.profiler on every rank, traces to `folder`. Raise KnobError where there is nothing to profile."""
        ...

    def end_profile(self, timeout_s: float) -> list[str]:
        """Stop profiling; the traces' paths, one a rank."""
        ...

    def close(self) -> None:
        """End every process that was started, within 10 s."""
        ...


@runtime_checkable
class MeasuresGpus(Protocol):
    """An executor that knows its GPUs' power and memory itself, because no probe can read them."""

    def gpu_frames(self) -> list[GpuFrame]:
        """GPU frames since the last call; the engine core sets `source`."""
        ...
