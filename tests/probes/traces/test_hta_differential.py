"""Differential test against Holistic Trace Analysis, on every set of traces at hand.

Known faults of that tool, allowed for here: it takes any event with a stream for GPU work; communication other than
NCCL is compute to it (and peer-to-peer copies are memory); kernels whose name holds `Sync` are no compute to it.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from probes.traces.breakdown import breakdown
from probes.traces.load import load
from tests.probes.traces.hta import plain_files, run_hta

pytestmark = pytest.mark.optin

PER_KERNEL_US = 1.0


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "pattern",
    [
        "sglang-pp2-h200/*.json.gz",
        "vllm-pp2-h200/graphs.*.gz",
        "vllm-pp2-h200/eager.*.gz",
        "kineto/sampled_rank-*.json.gz",
        "kineto/dlrm_kineto.tar.gz",
    ],
)
def test_the_breakdown_agrees(shared_data: Path, pattern: str, tmp_path: Path) -> None:
    paths = sorted(shared_data.glob(pattern))
    if paths[0].name.endswith(".tar.gz"):
        with tarfile.open(paths[0]) as archive:
            archive.extractall(tmp_path, filter="data")
        paths = sorted(tmp_path.rglob("*.json"))
    theirs = run_hta(plain_files(paths))["rows"]
    for rank, path in enumerate(paths):
        (trace,) = load([path]).ranks
        ours = breakdown(trace)
        allowed = PER_KERNEL_US * len(trace.ops)
        mine = [part / 1000 for part in (ours.idle, ours.compute, ours.non_compute, ours.span)]
        for name, a, b in zip(("idle", "compute", "non-compute", "span"), mine, theirs[str(rank)], strict=True):
            assert abs(a - b) <= allowed, f"{path.name} {name}: {a:.1f} us, theirs {b:.1f} us"
        print(f"{path.name}: ours {[round(m, 1) for m in mine]}, theirs {[round(t, 1) for t in theirs[str(rank)]]} us")
