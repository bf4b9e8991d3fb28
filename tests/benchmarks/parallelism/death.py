"""What follows when a rank is killed in the middle of a step."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec

from engine.config import EngineConfig
from sessions.messages import Fault
from tests.benchmarks.parallelism.changes import ClosedLoop
from tests.benchmarks.parallelism.session import gpu_memory_bytes, opened

FAULT_S = 15.0
GONE_S = 20.0
FREED_S = 10.0


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """Times from the kill. `freed`: the GPUs' memory is back to what it was before the engine."""

    killed: int
    named: int | None
    cause: str
    fault_ms: float | None
    all_gone_ms: float | None
    memory_before: dict[int, int]
    memory_after: dict[int, int]
    freed: bool
    restarted_s: float


def kill_a_rank(config: EngineConfig, concurrency: int, prompt: int) -> Death:
    """Kill the last rank's process under load, then start the engine again."""
    before = gpu_memory_bytes()
    with opened(config) as session:
        faults = session.channel.subscribe((Fault,))
        ranks = session.target.engine.ranks
        last = max(ranks, key=lambda rank: rank.rank)
        ClosedLoop(session, concurrency, prompt, 512)  # ends with the engine
        time.sleep(1.5)
        killed_ns = time.monotonic_ns()
        os.kill(last.pid, signal.SIGKILL)
        fault = faults.get(FAULT_S)
        fault_ms = (time.monotonic_ns() - killed_ns) / 1e6 if fault is not None else None
        gone_ms = _await_gone([rank.pid for rank in ranks], killed_ns)
    after = _await_freed(before)
    with opened(config) as session:
        restarted_s = session.ready_s
    return Death(
        killed=last.rank,
        named=fault.rank if isinstance(fault, Fault) else None,
        cause=f"{fault.what}: {fault.cause}" if isinstance(fault, Fault) else "",
        fault_ms=fault_ms,
        all_gone_ms=gone_ms,
        memory_before=before,
        memory_after=after,
        freed=_freed(before, after),
        restarted_s=restarted_s,
    )


def _await_gone(pids: list[int], since_ns: int) -> float | None:
    deadline = time.monotonic() + GONE_S
    while time.monotonic() < deadline:
        if not any(_runs(pid) for pid in pids):
            return (time.monotonic_ns() - since_ns) / 1e6
        time.sleep(0.01)
    return None


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _await_freed(before: dict[int, int]) -> dict[int, int]:
    deadline = time.monotonic() + FREED_S
    while not _freed(before, after := gpu_memory_bytes()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return after


def _freed(before: dict[int, int], after: dict[int, int]) -> bool:
    return all(after.get(index, 0) <= used + (64 << 20) for index, used in before.items())
