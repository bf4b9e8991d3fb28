"""Workers that torchrun starts join a driver that listens, and end with it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from engine.config import ConfigError, EngineConfig
from engine.distributed import DistributedExecutor
from engine.plan import AdmitRow, AppendBlocks, MicroBatchPlan, PrefillChunk
from engine.worker_processes import WorkerProcesses
from sessions.messages import LogLine


def test_torchrun_workers_join_and_end(checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    monkeypatch.setenv("HERDSCOPE_TOKEN", "a secret")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    launched = subprocess.Popen(
        [*torchrun, "-m", "engine.worker"],
        env=os.environ | {"HERDSCOPE_DRIVER": address, "GLOO_SOCKET_IFNAME": "lo"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    lines: list[LogLine] = []
    config = EngineConfig(
        model=str(checkpoints["qwen3-moe"]), pp=2, device="cpu", kv_blocks=16, max_context=64, listen=address
    )
    try:
        executor = DistributedExecutor(config, on_log=lines.append)
        assert any(f"HERDSCOPE_DRIVER={address}" in line.text for line in lines)
        pids = [rank.pid for rank in executor.capabilities.ranks]
        plan = MicroBatchPlan(
            0, 0, [AdmitRow(0, [1, 2, 3], 0.0, 1.0, 0)], [AppendBlocks(0, 0, [0])], [], [PrefillChunk(0, 0, 3, True)]
        )
        executor.submit(plan)
        assert len(executor.collect(20.0)[0].tokens) == 1
        executor.close()
        deadline = time.monotonic() + 10
        while any(map(psutil.pid_exists, pids)):
            assert time.monotonic() < deadline, "workers outlived their driver"
            time.sleep(0.1)
        assert launched.wait(30) == 0
    finally:
        launched.kill()


def test_a_stranger_is_turned_away_and_absence_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.worker_processes.JOIN_S", 0.5)
    monkeypatch.setenv("HERDSCOPE_TOKEN", "a secret")
    with pytest.raises(ConfigError, match=r"ranks \[0, 1\] did not join at 127\.0\.0\.1:\d+ within"):
        WorkerProcesses(2, "127.0.0.1:0", None)
    with pytest.raises(ConfigError, match="listen 'nowhere': cannot await workers there"):
        WorkerProcesses(2, "nowhere", None)
