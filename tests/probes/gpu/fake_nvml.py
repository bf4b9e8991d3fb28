"""A pynvml of our own for tests: any number of GPUs, functions that are missing, GPUs that die, calls that are slow."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml


class FakeNvml:
    """Answers like the module pynvml. `fail[name]` or `fail[name, index]` is the NVML error code a call raises."""

    def __init__(self, gpus: int, advance: Callable[[int], None] = lambda ns: None) -> None:
        self.gpus = gpus
        self.watts = [85.0] * gpus
        self.fail: dict[Any, int] = {}
        self.cost_ns: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        self.initialised = 0
        self._advance = advance

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvml") and callable(getattr(pynvml, name)):
            return lambda *arguments: self._call(name, *arguments)
        return getattr(pynvml, name)

    def _call(self, name: str, *arguments: Any) -> Any:
        self.calls[name] = self.calls.get(name, 0) + 1
        self._advance(self.cost_ns.get(name, 1000))
        index = arguments[0] if arguments and isinstance(arguments[0], int) else None
        for key in (name, (name, index), ("*", index)):
            if key in self.fail:
                raise pynvml.NVMLError(self.fail[key])
        return getattr(self, "do_" + name)(*arguments)

    def do_nvmlInit(self) -> None:
        self.initialised += 1

    def do_nvmlShutdown(self) -> None:
        self.initialised -= 1

    def do_nvmlDeviceGetCount(self) -> int:
        return self.gpus

    def do_nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def do_nvmlDeviceGetUUID(self, index: int) -> str:
        return f"GPU-{index}"

    def do_nvmlDeviceGetName(self, index: int) -> bytes:
        return b"Fake RTX"

    def do_nvmlDeviceGetFieldValues(self, index: int, fields: list[int]) -> list[Any]:
        assert fields == [pynvml.NVML_FI_DEV_POWER_INSTANT]
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=int(self.watts[index] * 1000)))]

    def do_nvmlDeviceGetPowerUsage(self, index: int) -> int:
        return 77_000

    def do_nvmlDeviceGetMemoryInfo(self, index: int) -> Any:
        return SimpleNamespace(used=3 << 30, total=96 << 30)

    def do_nvmlDeviceGetClockInfo(self, index: int, clock: int) -> int:
        return {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 3201}[clock]

    def do_nvmlDeviceGetTemperature(self, index: int, sensor: int) -> int:
        return 41

    def do_nvmlDeviceGetCurrentClocksEventReasons(self, index: int) -> int:
        return int(pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonGpuIdle)

    do_nvmlDeviceGetCurrentClocksThrottleReasons = do_nvmlDeviceGetCurrentClocksEventReasons

    def do_nvmlDeviceGetUtilizationRates(self, index: int) -> Any:
        return SimpleNamespace(gpu=50)

    def do_nvmlDeviceGetEnforcedPowerLimit(self, index: int) -> int:
        return 600_000

    def do_nvmlDeviceGetTotalEnergyConsumption(self, index: int) -> int:
        return 123_456

    def do_nvmlDeviceGetPcieThroughput(self, index: int, counter: int) -> int:
        return 2048
