"""A driver over the tests' executor, run as a process. The model's name says how it behaves."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from engine.config import ConfigError, EngineConfig
from engine.driver.__main__ import main
from engine.driver.executors import OnLog
from engine.executor import Executor, WorkerDied
from sessions.messages import LogLine

from ..pipeline_executor import PipelineExecutor


class WorkerExecutor(PipelineExecutor):
    """With one real child process that, as a worker, ends when the driver does and whose death is noticed."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config, stages=2, max_run_ahead=1, unavailable={"cuda_graphs": "no CUDA device"})
        code = (
            f"import time; from engine.parentwatch import kill_on_parent_death as k; k({os.getpid()}); time.sleep(600)"
        )
        self.child = subprocess.Popen([sys.executable, "-c", code])
        rank = self.capabilities.ranks[1]
        self.capabilities.ranks[1] = type(rank)(1, 1, 1, 2, "cpu", "host", self.child.pid)

    def collect(self, timeout_s: float) -> list:  # type: ignore[type-arg]
        done = super().collect(timeout_s)
        if done and self.config.model == "breaks later":
            raise RuntimeError("a later mistake")
        if self.child.poll() is not None:
            raise WorkerDied(1, "killed by SIGKILL", None, "SIGKILL", ["the last line"])
        return done

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        super().close()


def open_executor(config: EngineConfig, on_log: OnLog) -> Executor:
    on_log(LogLine(time.monotonic_ns(), 0, f"pid {os.getpid()} loads {config.model}"))
    if config.model == "refused":
        raise ConfigError("pp: 9 stages for 4 layers: choose at most 4")
    if config.model == "broken":
        raise RuntimeError("a mistake of ours")
    if config.model == "slow":
        time.sleep(60)
    return WorkerExecutor(config)


if __name__ == "__main__":
    sys.exit(main(open_with=open_executor))
