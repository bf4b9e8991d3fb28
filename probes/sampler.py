"""Runs the GPU and host probes in threads of their own and publishes what they see."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from probes.gpu import GpuProbe
from probes.host import HostProbe
from sessions.messages import Message

JOIN_TIMEOUT_S = 2.0


class Sampler:
    """Publishes GpuFrames at `rate_hz` and a HostFrame each second until stopped.

    The slow NVML lane has its own thread, so that a call of 20 ms does not delay the power samples. Ticks keep to a
    fixed grid; those that could not be kept are counted in `missed_ticks`, never made up for.
    """

    def __init__(
        self,
        publish: Callable[[Message], None],
        gpu: GpuProbe | None,
        host: HostProbe | None,
        rate_hz: float = 10.0,
    ) -> None:
        self.ticks = 0
        self.missed_ticks = 0
        self._publish = publish
        self._gpu = gpu
        self._host = host
        self._period_s = 1 / rate_hz
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._fast_loop, name="sampler-fast", daemon=True),
            threading.Thread(target=self._slow_loop, name="sampler-slow", daemon=True),
        ]

    def start(self) -> None:
        """Begin sampling."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End both threads (within 2 s) and let go of NVML."""
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(JOIN_TIMEOUT_S)
        if self._gpu is not None:
            self._gpu.close()

    def _fast_loop(self) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            for frame in self._gpu.sample() if self._gpu else ():
                self._publish(frame)
            self.ticks += 1
            late = int((time.monotonic() - due) / self._period_s)
            self.missed_ticks += late
            due += (late + 1) * self._period_s

    def _slow_loop(self) -> None:
        while not self._stop.is_set():
            if self._gpu is not None:
                self._gpu.sample_slow()
            if self._host is not None:
                self._publish(self._host.sample())
            self._stop.wait(1.0)
