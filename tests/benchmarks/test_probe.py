"""What the headless probe costs: CPU at 10 Hz with 8 GPUs, missed ticks, memory over a long run at speed."""

from __future__ import annotations

import resource
import time
from typing import cast

import pynvml
import pytest

from probes.gpu import GpuProbe
from probes.host import HostProbe
from probes.sampler import Sampler
from sessions.messages import Message
from tests.probes.gpu.fake_nvml import FakeNvml

SECONDS = 20


@pytest.mark.benchmark
def test_cost_at_10_hz_with_8_gpus() -> None:
    messages = 0

    def publish(_message: Message) -> None:
        nonlocal messages
        messages += 1

    sampler = Sampler(publish, GpuProbe("s", cast("type[pynvml]", FakeNvml(8))), HostProbe("s"))
    before = time.process_time()
    sampler.start()
    time.sleep(SECONDS)
    sampler.stop()
    cpu = (time.process_time() - before) / SECONDS
    print(
        f"\nprobe, 8 GPUs at 10 Hz (NVML stands in): {cpu:.2%} of a core, {messages / SECONDS:.0f} messages/s,", end=" "
    )
    print(f"{sampler.missed_ticks} of {sampler.ticks} ticks missed")
    assert sampler.ticks > SECONDS * 5


@pytest.mark.benchmark
def test_memory_over_an_hour_of_samples_at_speed() -> None:
    probe = GpuProbe("s", cast("type[pynvml]", FakeNvml(8)))
    host = HostProbe("s")
    for _ in range(1000):
        probe.sample()
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for tick in range(36_000):
        probe.sample()
        if tick % 10 == 0:
            probe.sample_slow()
            host.sample()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
    print(f"\nprobe, an hour of samples at speed: grew by {grown} KiB")
    assert grown < 4096
