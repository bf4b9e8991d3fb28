"""Runs Holistic Trace Analysis in an interpreter of its own, named by HERDSCOPE_HTA_PYTHON."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "HERDSCOPE_HTA_PYTHON"

CLOCKS = """
import json, re, resource, sys, time

def clocks():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(u.ru_utime + u.ru_stime for u in used)

def told(begun, imported):
    ended = clocks()
    peak = int(re.search("VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
    return {"seconds": ended[0] - begun[0], "analysis": ended[0] - imported[0], "cpu": ended[1] - begun[1],
            "analysis_cpu": ended[1] - imported[1], "peak_kb": peak}
"""
"""For scripts: wall and CPU seconds (of children too) with and without imports, and peak memory in KB."""

_ANALYSES = """
files = {int(rank): path for rank, path in json.loads(sys.argv[1]).items()}
analysis = TraceAnalysis(trace_files=files, include_last_profiler_step=True)
table = analysis.get_temporal_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
analysis.get_idle_time_breakdown(ranks=list(files), visualize=False)
analysis.get_cuda_kernel_launch_stats(ranks=list(files), visualize=False)
"""
"""Those whose questions a diagnosis answers too: where the time went, what overlaps, why the GPU idles, how late
launches are."""

_SCRIPT = f"""{CLOCKS}
begun = clocks()
from hta.trace_analysis import TraceAnalysis
imported = clocks()
{_ANALYSES}
used = told(begun, imported)
rows = {{int(row["rank"]): [float(row[name]) for name in
        ("idle_time(us)", "compute_time(us)", "non_compute_time(us)", "kernel_time(us)")]
        for _, row in table.iterrows()}}
print("RESULT" + json.dumps({{"rows": rows, **used}}))
"""

_AS_A_COMMAND = f"""
import json, sys
from hta.trace_analysis import TraceAnalysis
{_ANALYSES}
"""


def hta_command(files: dict[int, Path]) -> list[str]:
    """A command line of Holistic Trace Analysis that analyses these files; skips the test when it is not there."""
    return [_python(), "-c", _AS_A_COMMAND, json.dumps({rank: str(path) for rank, path in files.items()})]


def run_hta(files: dict[int, Path]) -> dict[str, Any]:
    """idle, compute, non-compute and span (us) by rank, and what it cost (see CLOCKS). Times are not rounded."""
    command = [_python(), "-c", _SCRIPT, json.dumps({rank: str(path) for rank, path in files.items()})]
    environment = {**os.environ, "HTA_DISABLE_NS_ROUNDING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    result = next((line for line in done.stdout.splitlines() if line.startswith("RESULT")), None)
    assert result is not None, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(result.removeprefix("RESULT"))
    return found


def _python() -> str:
    python = os.environ.get(VARIABLE)
    if not python:
        pytest.skip(f"{VARIABLE} names no Python with HolisticTraceAnalysis")
    return python


def plain_files(paths: Sequence[Path]) -> dict[int, Path]:
    """By rank, in the order given."""
    return dict(enumerate(paths))
