from __future__ import annotations

import os
import subprocess
import sys

from probes.host import HostProbe, WatchedProcess


def test_samples_the_host_and_the_watched_processes() -> None:
    probe = HostProbe("s", lambda: [WatchedProcess(os.getpid(), "driver"), WatchedProcess(os.getppid(), "worker", 1)])
    frame = probe.sample()
    assert frame.memory_total_bytes > frame.memory_used_bytes > 0
    assert frame.cores >= 1
    assert [(p.pid, p.role, p.rank) for p in frame.processes] == [
        (os.getpid(), "driver", None),
        (os.getppid(), "worker", 1),
    ]
    assert frame.processes[0].memory_bytes > 1 << 20


def test_a_busy_process_shows_its_cpu() -> None:
    probe = HostProbe("s", lambda: [WatchedProcess(os.getpid(), "driver")])
    probe.sample()
    start = os.times().user
    while os.times().user - start < 0.2:
        sum(range(1000))
    assert probe.sample().processes[0].cpu_ratio > 0.2


def test_an_ended_process_is_left_out() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    probe = HostProbe("s", lambda: [WatchedProcess(child.pid, "worker", 0)])
    child.wait(timeout=30)
    assert probe.sample().processes == []
