from __future__ import annotations

from typing import cast

import pynvml
import pytest

from probes.gpu import GpuProbe
from probes.gpu.readings import PCIE_READING, READINGS
from tests.probes.gpu.fake_nvml import FakeNvml


class Time:
    def __init__(self) -> None:
        self.ns = 1_000

    def now(self) -> int:
        return self.ns

    def advance(self, ns: int) -> None:
        self.ns += ns


def make(gpus: int = 1, **fail: int) -> tuple[GpuProbe, FakeNvml, Time]:
    time = Time()
    nvml = FakeNvml(gpus, time.advance)
    nvml.fail.update(fail)
    return GpuProbe("host/probe/1", cast("type[pynvml]", nvml), now_ns=time.now), nvml, time


@pytest.mark.parametrize("gpus", [1, 8, 64])
def test_reads_every_gpu_in_base_units(gpus: int) -> None:
    probe, nvml, _ = make(gpus)
    nvml.watts[-1] = 600.5
    probe.sample_slow()
    frames = probe.sample()
    assert [frame.index for frame in frames] == list(range(gpus))
    last = frames[-1]
    assert (last.power_watts, last.power_limit_watts, last.energy_joules_total) == (600.5, 600.0, 123.456)
    assert (last.memory_used_bytes, last.memory_total_bytes) == (3 << 30, 96 << 30)
    assert (last.sm_clock_hertz, last.memory_clock_hertz) == (1980e6, 3201e6)
    assert (last.utilization_ratio, last.temperature_celsius) == (0.5, 41.0)
    assert last.clock_event_reasons == ["gpu_idle", "sw_power_cap"]
    assert (last.name, last.uuid, last.unavailable) == ("Fake RTX", f"GPU-{gpus - 1}", {})


def test_the_fast_lane_makes_one_batched_power_call_and_no_slow_one() -> None:
    probe, nvml, _ = make(2)
    nvml.calls.clear()
    probe.sample()
    assert nvml.calls["nvmlDeviceGetFieldValues"] == 2
    assert not {"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetUtilizationRates"} & nvml.calls.keys()


def test_a_missing_function_is_named_with_its_reason_and_leaves_the_rest() -> None:
    probe, nvml, _ = make(1, nvmlDeviceGetEnforcedPowerLimit=pynvml.NVML_ERROR_NOT_SUPPORTED)
    probe.sample_slow()
    frame = probe.sample()[0]
    assert frame.power_limit_watts is None
    assert frame.unavailable == {"power_limit_watts": "Not Supported"}
    assert frame.power_watts == 85.0
    nvml.fail.clear()
    probe.sample_slow()
    assert probe.sample()[0].unavailable == {}


def test_power_falls_back_to_the_average_where_the_instant_field_is_missing() -> None:
    probe, _, _ = make(1, nvmlDeviceGetFieldValues=pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    assert probe.sample()[0].power_watts == 77.0


def test_clock_reasons_fall_back_to_their_old_name() -> None:
    probe, _, _ = make(1, nvmlDeviceGetCurrentClocksEventReasons=pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    probe.sample_slow()
    assert probe.sample()[0].clock_event_reasons == ["gpu_idle", "sw_power_cap"]


def test_the_energy_counter_is_read_once_in_half_a_minute() -> None:
    probe, nvml, time = make(1)
    for _ in range(65):
        probe.sample_slow()
        time.advance(1_000_000_000)
    assert nvml.calls["nvmlDeviceGetTotalEnergyConsumption"] == 3
    assert nvml.calls["nvmlDeviceGetUtilizationRates"] == 65


def test_a_call_seen_twice_to_be_slow_moves_to_the_slow_lane() -> None:
    probe, nvml, _ = make(1)
    nvml.cost_ns["nvmlDeviceGetMemoryInfo"] = 3_000_000
    probe.sample()
    assert probe.lane("memory") == "fast"
    probe.sample()
    assert probe.lane("memory") == "slow"
    before = nvml.calls["nvmlDeviceGetMemoryInfo"]
    probe.sample()
    assert nvml.calls["nvmlDeviceGetMemoryInfo"] == before
    probe.sample_slow()
    assert nvml.calls["nvmlDeviceGetMemoryInfo"] == before + 1


def test_a_gpu_that_falls_off_the_bus_is_named_and_comes_back() -> None:
    probe, nvml, time = make(8)
    nvml.fail["*", 3] = pynvml.NVML_ERROR_GPU_IS_LOST
    frames = probe.sample()
    assert frames[3].power_watts is None
    assert frames[3].unavailable["power_watts"] == "GPU is lost"
    assert frames[3].uuid == "GPU-3"
    assert all(frames[i].power_watts == 85.0 for i in range(8) if i != 3)
    nvml.fail.clear()
    assert probe.sample()[3].power_watts is None, "looked for again only after a while"
    time.advance(6_000_000_000)
    assert probe.sample()[3].power_watts == 85.0
    assert nvml.initialised == 1


def test_a_driver_reload_is_survived() -> None:
    probe, nvml, time = make(2)
    nvml.fail["*", 0] = nvml.fail["*", 1] = pynvml.NVML_ERROR_UNINITIALIZED
    nvml.fail["nvmlInit"] = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert [frame.power_watts for frame in probe.sample()] == [None, None]
    time.advance(6_000_000_000)
    probe.sample()
    assert probe.reason == "the NVIDIA driver is not loaded: modprobe nvidia"
    nvml.fail.clear()
    time.advance(6_000_000_000)
    assert [frame.power_watts for frame in probe.sample()] == [85.0, 85.0]
    assert probe.reason is None


def test_without_a_driver_it_samples_nothing_and_says_why() -> None:
    probe, _, _ = make(1, nvmlInit=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    assert probe.sample() == []
    assert probe.reason == "no NVIDIA driver on this machine (libnvidia-ml.so.1 not found)"


def test_pcie_is_read_only_when_asked_for() -> None:
    nvml = FakeNvml(1)
    probe = GpuProbe("s", cast("type[pynvml]", nvml), readings=(*READINGS, PCIE_READING))
    probe.sample_slow()
    assert probe.sample()[0].pcie_rx_bytes_per_second == 2048 * 1024
