"""Writes traces as a server would, from a pipeline simulated by the max-plus recursion. Times in ms."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Tau = Callable[[int, int], float]
"""(stage, requests) -> ms of GPU time."""


def moe_tau(base: float = 2.0, per_request: float = 0.4) -> Tau:
    """A stage whose time grows with the micro-batch, as experts' does."""
    return lambda _stage, size: base + per_request * size


@dataclass
class Pipeline:
    """cohorts: requests of the micro-batches that go round. host: ms between a slot's tokens and its next step, inside
    scheduler marks. launch: ms to launch one kernel, 0 for CUDA graphs. clock: ms that each rank's clock is ahead."""

    cohorts: Sequence[int]
    stages: int
    tau: Tau = field(default_factory=moe_tau)
    rounds: int = 14
    wire: float = 0.01
    host: float = 0.05
    launch: float = 0.0
    kernels: int = 24
    expert_share: float = 0.6
    engine: str = "sglang"
    clock: Sequence[float] = ()
    start: float = 1000.0


def traces(pipeline: Pipeline) -> list[dict[str, Any]]:
    """One Kineto object a rank."""
    ranks = [_Rank(pipeline, stage) for stage in range(pipeline.stages)]
    free = [pipeline.start] * pipeline.stages
    ready = [pipeline.start] * len(pipeline.cohorts)
    for _ in range(pipeline.rounds):
        for slot, size in enumerate(pipeline.cohorts):
            arrival = ready[slot]
            for stage, rank in enumerate(ranks):
                posted = free[stage]
                if stage > 0:
                    rank.receive(posted, arrival, size, stage - 1)
                start = max(arrival, posted)
                end = rank.step(start, size)
                free[stage] = end
                if stage + 1 < pipeline.stages:
                    rank.send(end, size, stage + 1)
                arrival = end + pipeline.wire
            ready[slot] = arrival + pipeline.host
            ranks[0].schedule(arrival, ready[slot])
    return [rank.finished() for rank in ranks]


def write(pipeline: Pipeline, folder: Path) -> list[Path]:
    """Write one .json.gz a rank, named as the server would."""
    paths = []
    for rank, content in enumerate(traces(pipeline)):
        name = f"1700000000.5-TP-0-PP-{rank}.trace.json.gz"
        if pipeline.engine == "vllm":
            name = f"dp0_pp{rank}_tp0_dcp0_ep0_rank{rank}.1700000000.pt.trace.json.gz"
        path = folder / name
        path.write_bytes(gzip.compress(json.dumps(content).encode(), 1))
        paths.append(path)
    return paths


class _Rank:
    def __init__(self, pipeline: Pipeline, stage: int) -> None:
        self.pipeline, self.stage = pipeline, stage
        self.ahead = pipeline.clock[stage] if pipeline.clock else 0.0
        self.events: list[dict[str, Any]] = []
        self.correlation = 0

    def step(self, start: float, size: int) -> float:
        """Emit one decode step; returns when it ended."""
        pipeline = self.pipeline
        compute = pipeline.tau(self.stage, size)
        each = compute / pipeline.kernels
        apart = max(each, pipeline.launch)
        end = start + apart * (pipeline.kernels - 1) + each
        name = f"step[DECODE bs={size}]"
        if pipeline.engine == "vllm":
            name = f"execute_context_0(0)_generation_{size}({size})"
        eager = pipeline.launch > 0
        self._slice(name, "user_annotation", "host", start - 0.01, (end - start) if eager else 0.2)
        if not eager:
            self.correlation += 1
            self._call("cudaGraphLaunch", start - 0.005, 0.1)
        for number in range(pipeline.kernels):
            at = start + number * apart
            if eager:
                self.correlation += 1
                self._call("cudaLaunchKernel", at - 0.004, 0.003)
            expert = number < pipeline.expert_share * pipeline.kernels
            kernel = "fused_moe_kernel" if expert else "nvjet_sm90_tst_64x16"
            self._slice(kernel, "kernel", "gpu", at, each, stream=7, correlation=self.correlation)
        return end

    def receive(self, posted: float, arrival: float, size: int, source: int) -> None:
        begin = max(posted, arrival - 1e4)
        end = max(arrival, posted + 0.004)
        self._comm("recv", begin, end - begin, size, {"Src Rank": source})

    def send(self, at: float, size: int, target: int) -> None:
        self._comm("send", at, self.pipeline.wire, size, {"Dst Rank": target})

    def schedule(self, start: float, end: float) -> None:
        if self.pipeline.engine == "sglang":
            self._slice("process_batch_result", "user_annotation", "host", start, end - start)

    def finished(self) -> dict[str, Any]:
        names = {"sglang": f"sglang::scheduler_PP{self.stage}", "vllm": f"VLLM::Worker_PP{self.stage}"}
        process = {
            "ph": "M",
            "name": "process_name",
            "pid": "host",
            "tid": 0,
            "ts": 0,
            "args": {"name": names.get(self.pipeline.engine, "python3")},
        }
        return {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": self.stage, "world_size": self.pipeline.stages},
            "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
            "traceEvents": [process, *sorted(self.events, key=lambda e: e["ts"])],
        }

    def _comm(self, op: str, start: float, length: float, size: int, ends: dict[str, int]) -> None:
        self.correlation += 1
        self._call("cudaLaunchKernelExC", start - 0.004, 0.003)
        peers = list(range(self.pipeline.stages))
        args = {
            "Collective name": op,
            "In msg nelems": size * 2048,
            "dtype": "BFloat16",
            "Process Group Ranks": str(peers),
        }
        name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
        self._slice(name, "kernel", "gpu", start, length, stream=9, correlation=self.correlation, **args, **ends)

    def _call(self, name: str, start: float, length: float) -> None:
        self._slice(name, "cuda_runtime", "host", start, length, correlation=self.correlation)

    def _slice(self, name: str, cat: str, pid: str, start: float, length: float, **args: Any) -> None:
        at = (start + self.ahead) * 1000
        where = {"pid": 0 if pid == "gpu" else 100 + self.stage, "tid": args.get("stream", 1)}
        self.events.append(
            {
                "ph": "X",
                "name": name,
                "cat": cat,
                "ts": round(at, 3),
                "dur": round(length * 1000, 3),
                "args": args,
                **where,
            }
        )
