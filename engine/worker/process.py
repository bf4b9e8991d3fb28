"""The message loop of one rank: takes the driver's orders one by one and answers them."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import time
from pathlib import Path

import torch

from engine.checkpoint.model_config import CheckpointError
from engine.config import ConfigError, EngineConfig, OutOfMemory
from engine.link import Link
from engine.plan import MicroBatchPlan
from engine.worker.environment import RankEnvironment
from engine.worker.expert_counts import ExpertCounter
from engine.worker.graphs import DecodeGraphs
from engine.worker.groups import Groups
from engine.worker.marks import CudaClock, DeviceClock, HostClock
from engine.worker.model_state import ModelState
from engine.worker.outcome import Reports
from engine.worker.rows import RowTable
from engine.worker.stage import Stage
from engine.worker_messages import (
    CheckSwitch,
    CountExperts,
    Done,
    EndProfile,
    Failed,
    Fingerprint,
    Joined,
    Load,
    Loaded,
    OpenCache,
    Ping,
    Pong,
    Run,
    SetGraphs,
    StartProfile,
    Stop,
    Switch,
    Switched,
    TakeFingerprint,
    ToDriver,
    ToWorker,
    Trace,
)
from sessions.clock import source_id

IDLE_S = 0.05
SEND_S = 60.0
MAX_GRAPH_BATCH = 256
"""Larger decode batches run eagerly: their kernels are long enough to hide their launches."""


class RankProcess:
    """One rank. Orders come in the same order on every rank, which is what keeps collectives matched."""

    def __init__(self, link: Link[ToWorker], environment: RankEnvironment) -> None:
        self._link, self._environment = link, environment
        self._state: ModelState | None = None
        self._groups: Groups | None = None
        self._stage: Stage | None = None
        self._reports: Reports | None = None
        self._clock: DeviceClock = HostClock()
        self._graphs_on = False
        self._counter: ExpertCounter | None = None
        self._profiler: torch.profiler.profile | None = None
        self._profile_folder = ""

    def serve(self) -> None:
        """Answer orders until Stop. Raise LinkClosed or PeerLost when the engine around this rank is gone."""
        env = self._environment
        clock = source_id("worker").partition("/")[0]
        self._send(Joined(env.rank, os.getpid(), socket.gethostname(), clock, env.token))
        while True:
            order = self._link.receive(IDLE_S)
            if order is None:
                if self._reports is not None:
                    self._reports.flush_spans()
            elif isinstance(order, Run):
                self._run(order)
            elif isinstance(order, SetGraphs):
                self._graphs_on = order.on
                self._set_graphs()
            elif isinstance(order, Stop):
                self._close()
                return
            else:
                self._send(self._answer(order))

    def _send(self, message: ToDriver) -> None:
        self._link.send(message)
        self._link.flush(SEND_S)

    def _run(self, order: Run) -> None:
        if self._stage is None or self._reports is None:
            return
        with self._annotated(order.plan):
            outcome = self._stage.run(order.plan)
        if self._counter is not None:
            self._counter.add(self._stage.decoder)
        self._reports.add(outcome)

    def _answer(self, order: ToWorker) -> ToDriver:
        try:
            return self._carry_out(order)
        except CheckpointError as error:
            return Failed("checkpoint", str(error))
        except ConfigError as error:
            return Failed("config", str(error))
        except OutOfMemory as error:
            return Failed("memory", str(error))
        except torch.OutOfMemoryError as error:
            return Failed("memory", f"rank {self._environment.rank}: {str(error).splitlines()[0]}")

    def _carry_out(self, order: ToWorker) -> ToDriver:
        match order:
            case Ping(asked):
                return Pong(asked, time.monotonic_ns())
            case Load(config):
                return self._load(config)
            case OpenCache(blocks, max_context):
                self._open(blocks, max_context)
                return Done()
            case CheckSwitch(mode):
                return self._loaded.room_for(mode)
            case Switch(mode):
                return self._switch(mode)
            case StartProfile(folder):
                return self._start_profile(folder)
            case EndProfile():
                return self._end_profile()
            case TakeFingerprint():
                return Fingerprint(self._loaded.fingerprint())
            case CountExperts(on):
                return self._count_experts(on)
        raise AssertionError(f"no answer to {order!r}")

    @property
    def _loaded(self) -> ModelState:
        assert self._state is not None, "Load comes first"
        return self._state

    def _load(self, config: EngineConfig) -> ToDriver:
        env = self._environment
        device = _device(config, env.local_rank)
        self._groups = Groups(env.rank, env.world, device, config.pp, config.ep)
        local_world = int(os.environ.get("LOCAL_WORLD_SIZE", env.world))
        self._state = state = ModelState(config, env.rank, local_world, device, self._groups)
        started = time.monotonic()
        state.load()
        print(f"weights: {state.weight_bytes / 1e9:.3f} GB in {time.monotonic() - started:.1f} s", flush=True)
        if device.type == "cuda":
            self._clock = CudaClock()
        self._reports = Reports(self._send, self._clock, device.type == "cuda", config.telemetry)
        self._graphs_on = config.knobs.cuda_graphs
        uuid = None
        name = "cpu"
        if device.type == "cuda":
            properties = torch.cuda.get_device_properties(device)
            name, uuid = properties.name, f"GPU-{properties.uuid}"
        return Loaded(name, uuid, state.cache_blocks(), state.weight_bytes)

    def _open(self, blocks: int, max_context: int) -> None:
        state = self._loaded
        assert self._groups is not None
        state.open_cache(blocks, max_context)
        self._stage = None
        if state.decoder is not None:
            max_blocks = -(-max_context // state.engine.block_size) + 1
            rows = RowTable(state.engine.max_running, max_blocks, state.engine.block_size, state.device)
            self._stage = Stage(state.decoder, state.layout, state.rank, rows, self._groups, self._clock)
        self._set_graphs()
        # What lives now lives on: no collection in the middle of a step need look at it.
        gc.collect()
        gc.freeze()

    def _set_graphs(self) -> None:
        stage = self._stage
        if stage is None or stage.rows.device.type != "cuda":
            return
        if stage.graphs is None and self._graphs_on:
            stage.graphs = DecodeGraphs(stage, min(self._loaded.engine.max_running, MAX_GRAPH_BATCH))
        # What was captured is kept while the knob is off, so that turning it back costs nothing.
        # A replay does not tell which experts it chose.
        stage.replays = self._graphs_on and self._counter is None

    def _switch(self, mode: str) -> ToDriver:
        state = self._loaded
        assert mode in ("pp", "ep")
        self._drop_stage()
        report = state.switch(mode)  # type: ignore[arg-type]
        return Switched(state.cache_blocks(), report.extra_bytes, state.layer_bytes, report.moved_bytes)

    def _drop_stage(self) -> None:
        if self._stage is not None:
            self._stage.settle()
            self._stage.graphs = None
            self._stage = None

    def _count_experts(self, on: bool) -> ToDriver:
        counted = self._counter or ExpertCounter()
        self._counter = ExpertCounter() if on else None
        if self._stage is not None:
            self._stage.decoder.routed = {} if on else None
        self._set_graphs()
        return counted.counts()

    def _annotated(self, plan: MicroBatchPlan) -> contextlib.AbstractContextManager[object]:
        """While a profile runs, a micro-batch's work stands under a mark of its own; readers of traces look for it."""
        if self._profiler is None:
            return contextlib.nullcontext()
        requests = len(plan.decode) + len(plan.prefill)
        if plan.prefill:
            return torch.profiler.record_function(f"step[EXTEND bs={requests} toks={plan.prefill_tokens}]")
        return torch.profiler.record_function(f"step[DECODE bs={requests}]")

    def _start_profile(self, folder: str) -> ToDriver:
        if self._profiler is not None:
            return Failed("knob", "a profile is running already")
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self._loaded.device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profile_folder = folder
        self._profiler = torch.profiler.profile(activities=activities)
        self._profiler.start()
        return Done()

    def _end_profile(self) -> ToDriver:
        if self._profiler is None:
            return Failed("knob", "no profile is running")
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        folder = Path(self._profile_folder)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"rank{self._environment.rank}.{time.time_ns()}.pt.trace.json.gz"
        profiler.export_chrome_trace(str(path))
        return Trace(str(path))

    def _close(self) -> None:
        # Graphs that captured a group's operations must be gone before the group, or leaving it hangs.
        if self._stage is not None:
            self._stage.graphs = None
        if self._reports is not None:
            self._reports.close()
        if self._groups is not None:
            self._groups.close()


def _device(config: EngineConfig, local_rank: int) -> torch.device:
    wanted = config.device
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device cuda: no CUDA device is visible here; use --device cpu")
    if wanted == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    if local_rank >= torch.cuda.device_count():
        raise ConfigError(f"rank {local_rank} has no GPU: {torch.cuda.device_count()} are visible; lower --pp or --ep")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device
