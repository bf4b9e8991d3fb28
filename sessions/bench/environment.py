"""What a benchmark ran on: the engine, the machine, the versions."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path

from sessions.messages import EngineState
from sessions.results import EngineSummary, MachineSummary
from sessions.versions import installed

PACKAGES = ("herdscope", "torch", "triton")


def engine_summary(state: EngineState) -> EngineSummary:
    """The engine as a result keeps it."""
    model = state.model
    pp = state.stages
    return EngineSummary(
        model=model.name if model else "",
        architecture=model.architecture if model else "",
        load_format=model.load_format if model else "",
        dtype=model.dtype if model else "",
        pp=pp,
        ep=len(state.ranks) if pp == 1 else 1,
        device=state.hardware or (state.ranks[0].device.split(":")[0] if state.ranks else ""),
        layers=[[rank.first_layer, rank.last_layer] for rank in state.ranks],
        kv_blocks=state.kv_blocks,
        block_size=state.block_size,
    )


def machine_summary(state: EngineState, gpus: list[str]) -> MachineSummary:
    """The machine that the engine's ranks run on. One that is not this host is known by its name only."""
    hosts = sorted({rank.host for rank in state.ranks})
    here = socket.gethostname()
    if hosts and here not in hosts:
        return MachineSummary(host=",".join(hosts), cpu="", cores=0, memory_bytes=0, gpus=gpus)
    import psutil

    return MachineSummary(
        host=here,
        cpu=_cpu_name(),
        cores=os.cpu_count() or 0,
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpus,
        driver=_driver_version(),
    )


def versions() -> dict[str, str]:
    """Versions of what decides the figures."""
    return installed(*PACKAGES) | {"kernel": platform.release()}


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _driver_version() -> str | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        finally:
            pynvml.nvmlShutdown()
    except (ImportError, pynvml.NVMLError):
        return None
