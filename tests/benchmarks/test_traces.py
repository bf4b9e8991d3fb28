"""Speed and memory of `herdscope diagnose`, beside Holistic Trace Analysis on the same files in the same run."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from tests.probes.traces.hta import CLOCKS, plain_files, run_hta
from tests.probes.traces.synthetic import Pipeline, traces

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]

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
