from __future__ import annotations

import time
from typing import cast

import pynvml

from probes.gpu import GpuProbe
from probes.host import HostProbe
from probes.sampler import Sampler
from sessions.messages import GpuFrame, HostFrame, Message
from tests.probes.gpu.fake_nvml import FakeNvml


def test_publishes_gpu_and_host_frames_and_stops() -> None:
    seen: list[Message] = []
    nvml = FakeNvml(2)
    sampler = Sampler(seen.append, GpuProbe("s", cast("type[pynvml]", nvml)), HostProbe("s"), rate_hz=50)
    sampler.start()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and not (
        sum(isinstance(m, GpuFrame) for m in seen) >= 10 and any(isinstance(m, HostFrame) for m in seen)
    ):
        time.sleep(0.02)
    sampler.stop()
    count = len(seen)
    assert sum(isinstance(m, GpuFrame) for m in seen) >= 10
    assert any(isinstance(m, HostFrame) for m in seen)
    time.sleep(0.1)
    assert len(seen) == count
    assert nvml.initialised == 0


def test_late_ticks_are_counted_not_made_up_for() -> None:
    def slow(_message: Message) -> None:
        time.sleep(0.06)

    sampler = Sampler(slow, GpuProbe("s", cast("type[pynvml]", FakeNvml(1))), None, rate_hz=50)
    sampler.start()
    time.sleep(0.5)
    sampler.stop()
    assert sampler.missed_ticks > sampler.ticks
