"""Chooses the executor that a configuration asks for. Each is imported only when it is chosen."""

from __future__ import annotations

from collections.abc import Callable

from engine.config import EngineConfig
from engine.executor import Executor
from sessions.messages import LogLine

OnLog = Callable[[LogLine], None]
OpenExecutor = Callable[[EngineConfig, OnLog], Executor]


def open_executor(config: EngineConfig, on_log: OnLog) -> Executor:
    """The emulated cluster when `config.emulate` is set, else the distributed workers, ready to run. Raise ConfigError
    (and what is derived from it), OutOfMemory or WorkerDied; then no process is left."""
    if config.emulate is not None:
        from engine.emulated.executor import EmulatedExecutor

        return EmulatedExecutor(config)
    from engine.distributed import DistributedExecutor

    return DistributedExecutor(config, on_log)
