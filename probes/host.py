"""The host and the engine's processes, through psutil."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

import msgspec
import psutil

from sessions.messages import HostFrame, ProcessSample


class WatchedProcess(msgspec.Struct, frozen=True):
    """A process to sample, with the role and rank to show it under."""

    pid: int
    role: str
    rank: int | None = None


class HostProbe:
    """Samples CPU, memory and load of this host, and CPU and memory of the processes that `watched` names each time."""

    def __init__(
        self,
        source: str,
        watched: Callable[[], list[WatchedProcess]] = list,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.source = source
        self._watched = watched
        self._now_ns = now_ns
        self._host = socket.gethostname()
        self._known: dict[int, psutil.Process] = {}
        psutil.cpu_percent(None)  # the first call only sets the start of the interval

    def sample(self) -> HostFrame:
        """Read everything now; CPU ratios are over the time since the last call. Ended processes are left out."""
        memory = psutil.virtual_memory()
        return HostFrame(
            source=self.source,
            t_ns=self._now_ns(),
            host=self._host,
            cpu_ratio=psutil.cpu_percent(None) / 100,
            cores=psutil.cpu_count() or 1,
            load=os.getloadavg()[0],
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            processes=self._processes(),
        )

    def _processes(self) -> list[ProcessSample]:
        watched = self._watched()
        wanted = {process.pid for process in watched}
        self._known = {pid: process for pid, process in self._known.items() if pid in wanted}
        samples = []
        for each in watched:
            try:
                process = self._known.get(each.pid) or psutil.Process(each.pid)
                self._known[each.pid] = process
                with process.oneshot():
                    cpu, rss = process.cpu_percent(None) / 100, process.memory_info().rss
            except psutil.Error:
                self._known.pop(each.pid, None)
                continue
            samples.append(ProcessSample(each.pid, each.role, each.rank, cpu, rss))
        return samples
