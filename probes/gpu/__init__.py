"""NVIDIA GPUs through NVML: power, memory, clocks, utilisation, energy."""

from __future__ import annotations

from probes.gpu.probe import GpuProbe

__all__ = ["GpuProbe"]
