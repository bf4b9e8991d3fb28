"""How soon the command line answers."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUNS = 15
HERDSCOPE = Path(sys.executable).parent / "herdscope"


@pytest.mark.benchmark
@pytest.mark.parametrize("args", [["--help"], ["bench", "--help"], ["completion", "bash"]], ids=" ".join)
def test_time_to_help(args: list[str]) -> None:
    seconds = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(RUNS):
        started = time.perf_counter()
        subprocess.run([HERDSCOPE, *args], check=True, capture_output=True)
        seconds.append(time.perf_counter() - started)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / RUNS
    print(
        f"\nherdscope {' '.join(args)}: median {statistics.median(seconds) * 1e3:.0f} ms, "
        f"worst {max(seconds) * 1e3:.0f} ms of {RUNS} runs, {cpu_s * 1e3:.0f} ms of CPU each "
        "(help is to take under 250 ms)"
    )
