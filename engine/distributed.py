"""The executor over worker processes: one a rank, talking to each other through torch.distributed."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from typing import NoReturn, TypeVar

import msgspec

from engine.checkpoint.model_config import CheckpointError
from engine.config import ConfigError, EngineConfig, OutOfMemory
from engine.executor import Capabilities, WorkerDied
from engine.link import LinkClosed
from engine.parallel.layout import layout_of
from engine.plan import MicroBatchPlan, MicroBatchResult
from engine.presets import model_config
from engine.worker_capabilities import describe
from engine.worker_clock import ClockOffset, measure_offset
from engine.worker_messages import (
    CheckSwitch,
    CountExperts,
    Done,
    EndProfile,
    ExpertCounts,
    Failed,
    Fingerprint,
    Load,
    Loaded,
    OpenCache,
    Room,
    Run,
    SetGraphs,
    Spans,
    StartProfile,
    Stop,
    Switch,
    Switched,
    TakeFingerprint,
    ToDriver,
    Tokens,
    ToWorker,
    Trace,
)
from engine.worker_processes import OnLog, WorkerProcesses
from sessions.knobs import KnobError, Knobs, Parallelism
from sessions.messages import StageFrame

LOAD_S = 3600.0
ORDER_S = 60.0
SWITCH_S = 600.0
MINIMUM_CONTEXT = 1024
"""A cache that cannot hold one request of this many tokens (or of `max_context`, if less) is of no use."""
GIB = 1 << 30

Answer = TypeVar("Answer", bound=msgspec.Struct)


class DistributedExecutor:
    """See engine.executor.Executor. One thread uses it, except `wake`."""

    def __init__(self, config: EngineConfig, on_log: OnLog | None = None) -> None:
        """Start the workers and load the model; returns when micro-batches can be submitted.

        `on_log` gets every line that a worker prints, from another thread. Raise ConfigError, CheckpointError,
        OutOfMemory or WorkerDied; then no process is left.
        """
        self._config = config
        self._model = model_config(config.model)
        self._layout = layout_of(self._model, config, config.knobs.parallelism)
        self._knobs = config.knobs
        self._results: deque[MicroBatchResult] = deque()
        self._frames: list[StageFrame] = []
        self._answers: dict[int, ToDriver] = {}
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._closed = False
        self.last_switch: list[Switched] = []
        """What each rank reported of the last change of parallelism."""
        self._processes = WorkerProcesses(max(config.pp, config.ep), config.listen, on_log)
        self._workers = self._processes.workers
        try:
            self._processes.await_joined()
            self._offsets: list[ClockOffset] = [measure_offset(worker) for worker in self._workers]
            self._loaded = self._order(Load(config), Loaded, LOAD_S)
            self._capabilities = self._open_cache(min(loaded.cache_blocks for loaded in self._loaded))
        except LinkClosed:
            error = self._processes.verdict()
            self.close()
            raise error from None
        except BaseException:
            self.close()
            raise

    @property
    def capabilities(self) -> Capabilities:
        """What this executor can do in its present parallelism."""
        return self._capabilities

    def submit(self, plan: MicroBatchPlan) -> None:
        """See Executor.submit."""
        frame = self._workers[0].link.encode(Run(plan))
        try:
            for worker in self._workers[: self._layout.ranks]:
                worker.link.send_frame(frame)
        except LinkClosed:
            self._die()

    def collect(self, timeout_s: float) -> list[MicroBatchResult]:
        """See Executor.collect."""
        deadline = time.monotonic() + timeout_s
        while True:
            woken = self._poll(0.0 if self._results else max(0.0, deadline - time.monotonic()))
            if self._results or woken or time.monotonic() >= deadline:
                results, self._results = list(self._results), deque()
                return results

    def wake(self) -> None:
        """See Executor.wake."""
        try:
            os.write(self._wake_write, b"w")
        except (BlockingIOError, OSError):
            return

    def spans(self) -> list[StageFrame]:
        """See Executor.spans."""
        frames, self._frames = self._frames, []
        return frames

    def apply(self, knobs: Knobs) -> Knobs:
        """See Executor.apply."""
        for name in ("cuda_graphs", "parallelism"):
            reason = self._capabilities.unavailable.get(name)
            if reason is not None and getattr(knobs, name) != getattr(self._knobs, name):
                raise KnobError(f"{name} is unavailable: {reason}")
        if knobs.parallelism != self._knobs.parallelism:
            self._switch(knobs.parallelism)
        if knobs.cuda_graphs != self._knobs.cuda_graphs:
            self._tell(SetGraphs(knobs.cuda_graphs))
        self._knobs = knobs
        return knobs

    def profile(self, folder: str) -> None:
        """See Executor.profile."""
        self._order(StartProfile(folder), Done, ORDER_S)

    def end_profile(self, timeout_s: float) -> list[str]:
        """See Executor.end_profile."""
        return [trace.path for trace in self._order(EndProfile(), Trace, timeout_s)]

    def fingerprints(self) -> list[dict[str, str]]:
        """For each rank, a hash of the very bits of each weight slice that it holds."""
        return [answer.hashes for answer in self._order(TakeFingerprint(), Fingerprint, SWITCH_S)]

    def count_experts(self, on: bool) -> list[ExpertCounts]:
        """Count experts from now on (or no more); what each rank has counted until now. Slows the engine while on."""
        return self._order(CountExperts(on), ExpertCounts, ORDER_S)

    def close(self) -> None:
        """See Executor.close."""
        if self._closed:
            return
        self._closed = True
        for worker in self._workers:
            try:
                worker.link.send(Stop())
            except LinkClosed:
                continue
        self._processes.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    # --- talking to the workers ---

    def _poll(self, timeout_s: float) -> bool:
        """Take in what has come, waiting up to `timeout_s` for something; True when `wake` was called."""
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        by_fd = {}
        for worker in self._workers:
            by_fd[worker.link.fileno()] = worker
            poll.register(worker.link.fileno(), select.POLLIN | (select.POLLOUT if worker.link.backlog else 0))
        woken = False
        for fd, _ in poll.poll(timeout_s * 1000):
            if fd == self._wake_read:
                os.read(self._wake_read, 4096)
                woken = True
                continue
            worker = by_fd[fd]
            try:
                worker.link.flush()
                while (message := worker.link.receive(0.0)) is not None:
                    self._take(worker.rank, message)
            except LinkClosed:
                worker.lost = True
                self._die()
        return woken

    def _take(self, rank: int, message: ToDriver) -> None:
        offset = self._offsets[rank]
        match message:
            case Tokens(step, slot, tokens, t_ns):
                self._results.append(MicroBatchResult(step, slot, tokens, offset.to_driver(t_ns)))
            case Spans(t_ns, window_ns, spans, residual_ns):
                stage = self._layout.stage_of(rank)
                if stage is not None:
                    self._frames.append(
                        StageFrame(
                            source="",
                            t_ns=offset.to_driver(t_ns),
                            stage=stage,
                            rank=rank,
                            window_ns=window_ns,
                            spans=spans,
                            clock_residual_ns=residual_ns + offset.residual_ns,
                        )
                    )
            case _:
                self._answers[rank] = message

    def _tell(self, order: ToWorker) -> None:
        """Send an order to every rank, behind the micro-batches sent before."""
        try:
            for worker in self._workers:
                worker.link.send(order)
        except LinkClosed:
            self._die()

    def _order(self, order: ToWorker, answer: type[Answer], timeout_s: float) -> list[Answer]:
        """Send an order to every rank; their answers by rank, or the first refusal raised once all have answered."""
        self._answers.clear()
        self._tell(order)
        deadline = time.monotonic() + timeout_s
        while len(self._answers) < len(self._workers):
            self._poll(0.1)
            refused = any(isinstance(given, Failed) for given in self._answers.values())
            if refused and isinstance(order, Load):
                break  # the others may wait for this rank to join them
            if time.monotonic() > deadline:
                late = next(worker for worker in self._workers if worker.rank not in self._answers)
                raise WorkerDied(late.rank, f"no answer to {type(order).__name__}", None, None, list(late.last_log))
        for rank in sorted(self._answers):
            given = self._answers[rank]
            if isinstance(given, Failed):
                raise _refusal(given)
        return [given for _, given in sorted(self._answers.items()) if isinstance(given, answer)]

    def _die(self) -> NoReturn:
        error = self._processes.verdict()
        self._processes.close(graceful_s=0.0)
        raise error

    # --- cache, parallelism, capabilities ---

    def _smallest_cache(self) -> int:
        context = min(self._config.max_context or MINIMUM_CONTEXT, self._model.max_positions)
        return -(-context // self._config.block_size)

    def _open_cache(self, fitting: int) -> Capabilities:
        blocks = self._cache_blocks(fitting)
        context = min(self._config.max_context or self._model.max_positions, blocks * self._config.block_size)
        self._order(OpenCache(blocks, context), Done, ORDER_S)
        return describe(self._config, self._model, self._layout, self._workers, self._loaded, blocks, context)

    def _cache_blocks(self, fitting: int) -> int:
        """The cache's size: as configured, else all that fits. Raise OutOfMemory with the numbers."""
        wanted = self._config.kv_blocks or self._smallest_cache()
        if fitting < wanted:
            raise OutOfMemory(
                f"the cache needs {wanted} blocks of {self._config.block_size} tokens and {fitting} fit beside the "
                "weights; lower kv_blocks, max_context or token_budget, or use more ranks"
            )
        return self._config.kv_blocks or fitting

    def _switch(self, mode: Parallelism) -> None:
        after = layout_of(self._model, self._config, mode)
        rooms = self._order(CheckSwitch(mode), Room, ORDER_S)
        for rank, room in enumerate(rooms):
            if room.needed_bytes > room.allowed_bytes:
                raise OutOfMemory(
                    f"switching to {mode}: rank {rank} needs {room.needed_bytes / GIB:.3f} GiB at the peak and may use "
                    f"{room.allowed_bytes / GIB:.3f} GiB; raise memory_fraction or memory_limit, or use more ranks"
                )
        self._cache_blocks(min(room.cache_blocks for room in rooms))
        switched = self._order(Switch(mode), Switched, SWITCH_S)
        self._layout = after
        self.last_switch = switched
        try:
            self._capabilities = self._open_cache(min(done.cache_blocks for done in switched))
        except OutOfMemory as error:
            # The rows are forgotten by now, so this is no refusal any more.
            self._processes.close(graceful_s=0.0)
            raise WorkerDied(0, f"no room for the cache after switching to {mode}: {error}", None, None, []) from error


def _refusal(failed: Failed) -> Exception:
    match failed.kind:
        case "config":
            return ConfigError(failed.reason)
        case "checkpoint":
            return CheckpointError(failed.reason)
        case "memory":
            return OutOfMemory(failed.reason)
        case "knob":
            return KnobError(failed.reason)
    return RuntimeError(failed.reason)
