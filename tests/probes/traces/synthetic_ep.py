"""Traces of an expert-parallel group: every layer ends with an all-reduce that waits for the slowest. Times in ms."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Group:
    """experts: ms in each rank's experts a layer. wire: ms of the all-reduce itself. jitter: ms by which a rank that
    changes from layer to layer is late. named: whether kernels carry their collective's arguments."""

    experts: Sequence[float]
    attention: float = 0.05
    wire: float = 0.01
    layers: int = 12
    steps: int = 14
    size: int = 16
    jitter: float = 0.02
    named: bool = True
    start: float = 1000.0


def write(group: Group, folder: Path) -> list[Path]:
    """Write one .json.gz a rank, as SGLang names them."""
    count = len(group.experts)
    events: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    now = [group.start] * count
    for step in range(group.steps):
        for rank in range(count):
            _add(events[rank], "user_annotation", f"step[DECODE bs={group.size}]", now[rank] - 0.05, 0.2)
            _add(events[rank], "cuda_runtime", "cudaGraphLaunch", now[rank] - 0.02, 0.02, correlation=step + 1)
        for layer in range(group.layers):
            late = (step * group.layers + layer) % count
            joined = []
            for rank in range(count):
                own = group.experts[rank] + (group.jitter if rank == late else 0.0)
                _add(events[rank], "kernel", "flash_attention", now[rank], group.attention, correlation=step + 1)
                begun = now[rank] + group.attention
                _add(events[rank], "kernel", "fused_moe_kernel", begun, own, correlation=step + 1)
                joined.append(begun + own)
            done = max(joined) + group.wire
            for rank in range(count):
                args: dict[str, Any] = {"correlation": step + 1, "stream": 7}
                if group.named:
                    args |= {"Collective name": "allreduce", "In msg nelems": group.size * 2048, "dtype": "BFloat16"}
                name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL" if group.named else "cross_device_reduce_1stage"
                _add(events[rank], "kernel", name, joined[rank], done - joined[rank], **args)
                now[rank] = done
        now = [at + 0.1 for at in now]
    paths = []
    for rank in range(count):
        content = {
            "distributedInfo": {"rank": rank, "world_size": count},
            "traceEvents": sorted(events[rank], key=lambda e: float(e["ts"])),
        }
        path = folder / f"1700000000.5-TP-{rank}-EP-{rank}.trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps(content).encode(), 1))
        paths.append(path)
    return paths


def _add(events: list[dict[str, Any]], cat: str, name: str, start: float, length: float, **args: Any) -> None:
    where = {"pid": 0, "tid": 7} if cat == "kernel" else {"pid": 10, "tid": 10}
    events.append(
        {"ph": "X", "name": name, "cat": cat, "ts": round(start * 1000, 3), "dur": round(length * 1000, 3)}
        | {"args": args}
        | where
    )
