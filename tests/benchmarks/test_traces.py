"""Speed and memory of `herdscope diagnose`, beside Holistic Trace Analysis on the same files in the same run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

from tests.probes.traces.hta import CLOCKS, hta_command, plain_files, run_hta
from tests.probes.traces.synthetic import Pipeline, traces

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]

_TURNS = 7

_MEASURE = (
    CLOCKS
    + """
begun = clocks()
from pathlib import Path
from probes.diagnosis.diagnose import diagnose
from probes.diagnosis.from_traces import evidence_from_traces
from probes.diagnosis.report import as_data
from probes.traces.load import load
imported = clocks()
report = as_data(diagnose(evidence_from_traces(load([Path(path) for path in sys.argv[1:]]))))
print("RESULT" + json.dumps({**told(begun, imported), "ranks": len(report["ranks"])}))
"""
)


def _diagnose(paths: list[Path]) -> dict[str, float]:
    command = [sys.executable, "-c", _MEASURE, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found: dict[str, float] = json.loads(done.stdout.removeprefix("RESULT"))
    return found


def test_eight_ranks_beside_holistic_trace_analysis(shared_data: Path, tmp_path: Path) -> None:
    with tarfile.open(shared_data / "kineto/dlrm_kineto.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    paths = sorted(tmp_path.rglob("*.json"))
    ours, theirs = _diagnose(paths), run_hta(plain_files(paths))
    for name, found in (("diagnose", ours), ("Holistic Trace Analysis", theirs)):
        print(
            f"\n8 ranks, {name}: {found['analysis']:.2f} s ({found['seconds']:.2f} s with imports), CPU "
            f"{found['analysis_cpu']:.2f} s ({found['cpu']:.2f} s), {found['peak_kb'] / 1024:.0f} MB"
        )
    print("faster by", {k: round(theirs[k] / ours[k], 1) for k in ("analysis", "seconds", "analysis_cpu", "cpu")})
    assert ours["peak_kb"] < theirs["peak_kb"]
    assert theirs["analysis_cpu"] >= 10 * ours["analysis_cpu"], "CPU time: other work on the machine changes wall time"


def test_the_whole_command_beside_holistic_trace_analysis(shared_data: Path, tmp_path: Path) -> None:
    """Processes from start to end, imports included, by turns; as installed, so with their modules compiled."""
    with tarfile.open(shared_data / "kineto/dlrm_kineto.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    paths = sorted(tmp_path.rglob("*.json"))
    commands = {
        "diagnose": [sys.executable, "-m", "tui.cli.main", "diagnose", str(paths[0].parent)],
        "Holistic Trace Analysis": hta_command(plain_files(paths)),
    }
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": str(tmp_path / "compiled"), "HTA_DISABLE_NS_ROUNDING": "1"}
    taken: dict[str, list[Taken]] = {name: [] for name in commands}
    for _ in range(1 + _TURNS):
        for name, command in commands.items():
            taken[name].append(_run(command, environment))
    middle = {name: Taken(*map(median, zip(*turns[1:], strict=True))) for name, turns in taken.items()}
    for name, found in middle.items():
        least = min(turn.seconds for turn in taken[name])
        print(
            f"\n{name}, whole process, median of {_TURNS}: {found.seconds:.2f} s (least {least:.2f}), "
            f"CPU {found.cpu:.2f} s, {found.peak_mb:.0f} MB",
            end="",
        )
    ours, theirs = middle.values()
    print(f"\nfaster by {theirs.seconds / ours.seconds:.1f}, by CPU time {theirs.cpu / ours.cpu:.1f}")
    assert ours.peak_mb < theirs.peak_mb
    assert theirs.cpu >= 10 * ours.cpu, "CPU time: HTA reads files in parallel, as far as cores are free"


class Taken(NamedTuple):
    """What a process took, with those that it started and waited for."""

    seconds: float
    cpu: float
    peak_mb: float


_LAUNCHER = """
import json, os, sys, time
command = sys.argv[1:]
nothing = os.open(os.devnull, os.O_WRONLY)
begun = time.perf_counter()
pid = os.posix_spawn(command[0], command, os.environ,
                     file_actions=[(os.POSIX_SPAWN_DUP2, nothing, 1), (os.POSIX_SPAWN_DUP2, nothing, 2)])
_, status, used = os.wait4(pid, 0)
seconds = time.perf_counter() - begun
assert status == 0, status
print(json.dumps([seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""
"""A process's peak memory counts its parent's from before it began: so the parent is a small one."""


def _run(command: list[str], environment: dict[str, str]) -> Taken:
    launched = [sys.executable, "-S", "-c", _LAUNCHER, *command]
    done = subprocess.run(launched, capture_output=True, text=True, timeout=120, env=environment, check=True)
    return Taken(*json.loads(done.stdout))


def test_a_trace_of_200_megabytes(tmp_path: Path) -> None:
    content = traces(Pipeline((8, 8), 2, rounds=2400, launch=0.05, kernels=96))[0]
    path = tmp_path / "huge-TP-0-PP-0.trace.json"
    operators = [
        {**event, "cat": "cpu_op", "name": "aten::mul", "args": {"External id": i, "Input Dims": [[8, 2048]]}}
        for i, event in enumerate(content["traceEvents"])
        if event.get("cat") == "cuda_runtime"
    ]
    content["traceEvents"] += operators
    path.write_text(json.dumps(content))
    assert path.stat().st_size > 200e6, path.stat().st_size
    found = _diagnose([path])
    print(
        f"\n{path.stat().st_size / 1e6:.0f} MB, {len(content['traceEvents'])} events: {found['seconds']:.1f} s, "
        f"{found['peak_kb'] / 1024:.0f} MB"
    )
    assert found["seconds"] < 20
    assert found["peak_kb"] < 1.5 * 1024 * 1024


def test_importing_the_command_is_cheap() -> None:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import tui.cli.diagnose"], check=True, timeout=60)
    print(f"\nimport: {time.perf_counter() - begun:.2f} s")
