"""Samples every GPU of this host: power in a fast lane, what costs more in a slow one, what costs most in a rare."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import msgspec

from probes.gpu.readings import READINGS, Lane, Reading, Values
from sessions.messages import GpuFrame

SLOW_CALL_NS = 2_000_000
SLOW_CALLS_TO_MOVE = 2
REOPEN_AFTER_NS = 5_000_000_000
RARE_NS = 30_000_000_000
"""How far apart readings of the rare lane are at least."""


class _Gpu(msgspec.Struct):
    """One device: its handle, its last values, why a field has none, and what it lost."""

    index: int
    handle: Any
    uuid: str
    name: str
    values: Values
    unavailable: dict[str, str]
    lost: str | None = None


class GpuProbe:
    """Reads GPUs by NVML. Without a driver it samples nothing and `reason` says why.

    `sample` takes the fast lane and may be called at 10 Hz; `sample_slow` takes the rest, from another thread if you
    like. A reading seen twice in a row to take longer than 2 ms moves to the slow lane. A GPU that falls off the bus is
    reported as such and looked for again; so is the driver after a reload.
    """

    def __init__(
        self,
        source: str,
        nvml: ModuleType | None = None,
        readings: Sequence[Reading] = READINGS,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.source = source
        self.reason: str | None = None
        self._nvml = nvml
        self._readings = readings
        self._now_ns = now_ns
        self._lanes: dict[str, Lane] = {reading.name: reading.lane for reading in readings}
        self._slow_calls: dict[str, int] = {}
        self._gpus: list[_Gpu] = []
        self._opened_ns = 0
        self._rare_ns: int | None = None
        self._open()

    @property
    def count(self) -> int:
        """GPUs found, those lost since included."""
        return len(self._gpus)

    def lane(self, name: str) -> Lane:
        """The lane that the reading of this name is in now."""
        return self._lanes[name]

    def sample(self) -> list[GpuFrame]:
        """Read the fast lane of every GPU now; slow values are those of the last `sample_slow`."""
        self._reopen_if_lost()
        for gpu in self._gpus:
            self._read_lane(gpu, "fast")
        return [self._frame(gpu) for gpu in self._gpus]

    def sample_slow(self) -> None:
        """Read the slow lane of every GPU, and when it is due the rare one; may take tens of milliseconds a GPU."""
        now_ns = self._now_ns()
        rare = self._rare_ns is None or now_ns - self._rare_ns >= RARE_NS
        if rare:
            self._rare_ns = now_ns
        for gpu in list(self._gpus):
            self._read_lane(gpu, "slow")
            if rare:
                self._read_lane(gpu, "rare")

    def close(self) -> None:
        """Let go of NVML."""
        if self._nvml is not None and self._gpus:
            with contextlib.suppress(self._nvml.NVMLError):  # a driver that is gone has nothing left to release
                self._nvml.nvmlShutdown()
        self._gpus = []

    def _open(self) -> None:
        self._opened_ns = self._now_ns()
        if self._nvml is None:
            try:
                self._nvml = importlib.import_module("pynvml")
            except ImportError:
                self.reason = "pynvml is not installed: pip install nvidia-ml-py"
                return
        try:
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            self.reason = _why_no_driver(self._nvml, error)
            return
        known = {gpu.index: gpu for gpu in self._gpus}
        self._gpus = [self._open_gpu(index, known.get(index)) for index in range(count)]
        self.reason = None if count else "the NVIDIA driver reports no GPU"

    def _open_gpu(self, index: int, before: _Gpu | None) -> _Gpu:
        nvml = self._nvml
        assert nvml is not None
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid, name = _text(nvml.nvmlDeviceGetUUID(handle)), _text(nvml.nvmlDeviceGetName(handle))
        except nvml.NVMLError as error:
            uuid, name = (before.uuid, before.name) if before else (f"gpu-{index}", "unknown GPU")
            return _Gpu(index, None, uuid, name, {}, {}, lost=str(error))
        return _Gpu(index, handle, uuid, name, {}, {})

    def _reopen_if_lost(self) -> None:
        """Look again for a missing driver or a lost GPU, at most every 5 s.

        A slow read that is under way meanwhile fails on its old handle, which nobody looks at any more.
        """
        missing = not self._gpus or any(gpu.lost for gpu in self._gpus)
        if not missing or self._now_ns() - self._opened_ns < REOPEN_AFTER_NS or self._nvml is None:
            return
        with contextlib.suppress(self._nvml.NVMLError):  # it may not be open: opening it is what comes next
            self._nvml.nvmlShutdown()
        self._open()

    def _read_lane(self, gpu: _Gpu, lane: Lane) -> None:
        for reading in self._readings:
            if gpu.lost is None and self._lanes[reading.name] == lane:
                self._read(gpu, reading)

    def _read(self, gpu: _Gpu, reading: Reading) -> None:
        nvml = self._nvml
        assert nvml is not None
        begun = self._now_ns()
        try:
            values = reading.read(nvml, gpu.handle)
        except nvml.NVMLError as error:
            if error.value in _lost_errors(nvml):
                gpu.lost = str(error)
                gpu.values = {}
                return
            for field in reading.fields:
                gpu.values.pop(field, None)
                gpu.unavailable[field] = str(error)
            return
        gpu.values.update(values)
        for field in reading.fields:
            gpu.unavailable.pop(field, None)
        self._judge_cost(reading.name, self._now_ns() - begun)

    def _judge_cost(self, name: str, took_ns: int) -> None:
        slow = self._slow_calls.get(name, 0) + 1 if took_ns > SLOW_CALL_NS else 0
        self._slow_calls[name] = slow
        if slow >= SLOW_CALLS_TO_MOVE and self._lanes[name] == "fast":
            self._lanes[name] = "slow"

    def _frame(self, gpu: _Gpu) -> GpuFrame:
        unavailable = dict(gpu.unavailable)
        if gpu.lost is not None:
            unavailable = {field: gpu.lost for reading in self._readings for field in reading.fields}
        return GpuFrame(
            source=self.source,
            t_ns=self._now_ns(),
            index=gpu.index,
            uuid=gpu.uuid,
            name=gpu.name,
            unavailable=unavailable,
            **gpu.values,
        )


def _lost_errors(nvml: ModuleType) -> tuple[int, ...]:
    return (
        nvml.NVML_ERROR_GPU_IS_LOST,
        nvml.NVML_ERROR_UNINITIALIZED,
        nvml.NVML_ERROR_DRIVER_NOT_LOADED,
        nvml.NVML_ERROR_RESET_REQUIRED,
    )


def _why_no_driver(nvml: ModuleType, error: Exception) -> str:
    value = getattr(error, "value", None)
    if value == nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return "no NVIDIA driver on this machine (libnvidia-ml.so.1 not found)"
    if value == nvml.NVML_ERROR_DRIVER_NOT_LOADED:
        return "the NVIDIA driver is not loaded: modprobe nvidia"
    return f"NVML: {error}"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
