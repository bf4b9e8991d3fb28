"""What can be read from one GPU: each reading is one NVML call and the GpuFrame fields that it fills.

Costs of a call on an H200: power field 2-7 us, memory 17 us, clocks 60 us, utilisation 230 us, energy 5 ms, PCIe
throughput 21 ms. Only the first two are cheap enough for eight GPUs ten times a second; energy at once a second would
alone be 4 % of a core, and is read more seldom still.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

import msgspec

Lane = Literal["fast", "slow", "rare"]
Values = dict[str, Any]
Read = Callable[[ModuleType, Any], Values]


class Reading(msgspec.Struct, frozen=True):
    """One NVML call: the frame fields it fills, the lane it starts in, and the call."""

    name: str
    fields: tuple[str, ...]
    lane: Lane
    read: Read


def _power(nvml: ModuleType, handle: Any) -> Values:
    # nvmlDeviceGetPowerUsage is an average over about a second; the field changes every 100 ms.
    try:
        value = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_POWER_INSTANT])[0]
        if value.nvmlReturn == nvml.NVML_SUCCESS:
            return {"power_watts": value.value.uiVal / 1000}
    except nvml.NVMLError as error:
        if error.value not in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            raise
    return {"power_watts": nvml.nvmlDeviceGetPowerUsage(handle) / 1000}


def _memory(nvml: ModuleType, handle: Any) -> Values:
    info = nvml.nvmlDeviceGetMemoryInfo(handle)
    return {"memory_used_bytes": int(info.used), "memory_total_bytes": int(info.total)}


def _sm_clock(nvml: ModuleType, handle: Any) -> Values:
    return {"sm_clock_hertz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6}


def _memory_clock(nvml: ModuleType, handle: Any) -> Values:
    return {"memory_clock_hertz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6}


def _temperature(nvml: ModuleType, handle: Any) -> Values:
    return {"temperature_celsius": float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))}


_REASONS = {
    "gpu_idle": "GpuIdle",
    "applications_clocks_setting": "ApplicationsClocksSetting",
    "sw_power_cap": "SwPowerCap",
    "hw_slowdown": "HwSlowdown",
    "sync_boost": "SyncBoost",
    "sw_thermal_slowdown": "SwThermalSlowdown",
    "hw_thermal_slowdown": "HwThermalSlowdown",
    "hw_power_brake_slowdown": "HwPowerBrakeSlowdown",
    "display_clock_setting": "DisplayClockSetting",
}


def _clock_event_reasons(nvml: ModuleType, handle: Any) -> Values:
    try:
        mask = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except nvml.NVMLError as error:
        if error.value != nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        mask = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)  # its name before driver 535
    return {
        "clock_event_reasons": [
            name for name, suffix in _REASONS.items() if mask & getattr(nvml, f"nvmlClocksEventReason{suffix}")
        ]
    }


def _utilization(nvml: ModuleType, handle: Any) -> Values:
    return {"utilization_ratio": nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100}


def _power_limit(nvml: ModuleType, handle: Any) -> Values:
    return {"power_limit_watts": nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000}


def _energy(nvml: ModuleType, handle: Any) -> Values:
    return {"energy_joules_total": nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000}


def _pcie(nvml: ModuleType, handle: Any) -> Values:
    return {
        "pcie_rx_bytes_per_second": nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES) * 1024.0,
        "pcie_tx_bytes_per_second": nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES) * 1024.0,
    }


READINGS: tuple[Reading, ...] = (
    Reading("power", ("power_watts",), "fast", _power),
    Reading("memory", ("memory_used_bytes", "memory_total_bytes"), "fast", _memory),
    Reading("sm clock", ("sm_clock_hertz",), "slow", _sm_clock),
    Reading("memory clock", ("memory_clock_hertz",), "slow", _memory_clock),
    Reading("temperature", ("temperature_celsius",), "slow", _temperature),
    Reading("clock event reasons", ("clock_event_reasons",), "slow", _clock_event_reasons),
    Reading("utilisation", ("utilization_ratio",), "slow", _utilization),
    Reading("power limit", ("power_limit_watts",), "slow", _power_limit),
    Reading("energy", ("energy_joules_total",), "rare", _energy),
)
"""Every reading taken by default."""

PCIE_READING = Reading("pcie", ("pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second"), "slow", _pcie)
"""Off unless asked for: two calls of 20 ms a GPU."""
