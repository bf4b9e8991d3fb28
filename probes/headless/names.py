"""Metric names in base units, and what DCGM's exporter and OpenTelemetry call the same thing."""

from __future__ import annotations

import msgspec


class MetricName(msgspec.Struct, frozen=True):
    """A GpuFrame field as a metric. `dcgm_scale` times our value is DCGM's; None: the other has no such metric."""

    field: str
    name: str
    help: str
    counter: bool = False
    dcgm: str | None = None
    dcgm_scale: float = 1.0
    otel: str | None = None


GPU_METRICS: tuple[MetricName, ...] = (
    MetricName(
        "power_watts", "gpu_power_watts", "Power drawn now.", dcgm="DCGM_FI_DEV_POWER_USAGE", otel="hw.gpu.power"
    ),
    MetricName("power_limit_watts", "gpu_power_limit_watts", "Enforced power limit.", otel="hw.power.limit"),
    MetricName(
        "energy_joules_total",
        "gpu_energy_joules_total",
        "Energy used since the driver was loaded.",
        counter=True,
        dcgm="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        dcgm_scale=1000.0,
        otel="hw.energy",
    ),
    MetricName(
        "memory_used_bytes",
        "gpu_memory_used_bytes",
        "Device memory in use.",
        dcgm="DCGM_FI_DEV_FB_USED",
        dcgm_scale=2.0**-20,
        otel="hw.gpu.memory.usage",
    ),
    MetricName("memory_total_bytes", "gpu_memory_total_bytes", "Device memory.", otel="hw.gpu.memory.limit"),
    MetricName(
        "utilization_ratio",
        "gpu_utilization_ratio",
        "Share of time with a kernel running; a kernel that spins while it waits counts as busy.",
        dcgm="DCGM_FI_DEV_GPU_UTIL",
        dcgm_scale=100.0,
        otel="hw.gpu.utilization",
    ),
    MetricName("sm_clock_hertz", "gpu_sm_clock_hertz", "SM clock.", dcgm="DCGM_FI_DEV_SM_CLOCK", dcgm_scale=1e-6),
    MetricName(
        "memory_clock_hertz", "gpu_memory_clock_hertz", "Memory clock.", dcgm="DCGM_FI_DEV_MEM_CLOCK", dcgm_scale=1e-6
    ),
    MetricName(
        "temperature_celsius",
        "gpu_temperature_celsius",
        "Core temperature.",
        dcgm="DCGM_FI_DEV_GPU_TEMP",
        otel="hw.temperature",
    ),
    MetricName("pcie_rx_bytes_per_second", "gpu_pcie_rx_bytes_per_second", "PCIe received.", otel="hw.gpu.io"),
    MetricName("pcie_tx_bytes_per_second", "gpu_pcie_tx_bytes_per_second", "PCIe sent.", otel="hw.gpu.io"),
)
