"""Changes to traces that must change only what they say: shifted clocks, merged files, scaled time, added waiting."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from probes.diagnosis.diagnose import Diagnosis, diagnose
from probes.diagnosis.from_traces import evidence_from_traces
from probes.diagnosis.report import as_data
from probes.traces.load import load
from probes.traces.merged import write_merged
from tests.probes.traces.synthetic import Pipeline, traces, write

DATA = Path(__file__).resolve().parents[2] / "data" / "traces"
PIPELINES = [
    Pipeline((16,), 2),
    Pipeline((4, 4, 4, 4), 4),
    Pipeline((14, 6, 6, 6), 4),
    Pipeline((8, 8), 2, launch=0.6, engine="vllm"),
    Pipeline((16,), 4, host=12.0),
]


def _paths(contents: list[dict[str, Any]], folder: Path) -> list[Path]:
    paths = []
    for rank, content in enumerate(contents):
        paths.append(folder / f"1-TP-0-PP-{rank}.trace.json")
        paths[-1].write_text(json.dumps(content))
    return paths


def _diagnosis(paths: list[Path]) -> Diagnosis:
    return diagnose(evidence_from_traces(load(paths)))


def _verdicts(diagnosis: Diagnosis) -> dict[str, str]:
    return {verdict.hypothesis: verdict.verdict for verdict in diagnosis.verdicts}


def _assert_alike(a: Any, b: Any, tolerance: float, path: str = "") -> None:
    """Two reports agree: words exactly, numbers nearly."""
    assert type(a) is type(b), path
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            _assert_alike(a[key], b[key], tolerance, f"{path}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), path
        for i, (left, right) in enumerate(zip(a, b, strict=True)):
            _assert_alike(left, right, tolerance, f"{path}[{i}]")
    elif isinstance(a, float):
        assert a == pytest.approx(b, rel=tolerance, abs=tolerance), path
    elif not path.endswith(("evidence[0]", "evidence[1]", "evidence[2]", "label")):
        assert a == b, path


def _moved(content: dict[str, Any], add: float = 0.0, scale: float = 1.0) -> dict[str, Any]:
    moved = copy.deepcopy(content)
    for event in moved["traceEvents"]:
        event["ts"] = round(event["ts"] * scale + add, 3)
        if "dur" in event:
            event["dur"] = round(event["dur"] * scale, 3)
    return moved


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda p: f"{p.cohorts}x{p.stages}")
@pytest.mark.parametrize("ahead_ms", [0.37, -12.0, 3_600_000.0])
def test_shifting_a_clock_changes_its_offset_alone(pipeline: Pipeline, ahead_ms: float, tmp_path: Path) -> None:
    contents = traces(pipeline)
    shifted = [*contents[:-1], _moved(contents[-1], add=ahead_ms * 1000)]
    (tmp_path / "b").mkdir()
    plain, other = load(_paths(contents, tmp_path)), load(_paths(shifted, tmp_path / "b"))
    assert other.offsets[-1] is not None and plain.offsets[-1] is not None
    assert other.offsets[-1] - plain.offsets[-1] == pytest.approx(ahead_ms * 1e6, abs=2000)
    before, after = (as_data(diagnose(evidence_from_traces(found))) for found in (plain, other))
    before.pop("alignment_residual_us"), after.pop("alignment_residual_us")
    _assert_alike(before, after, 2e-3)


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda p: f"{p.cohorts}x{p.stages}")
def test_merging_files_changes_nothing(pipeline: Pipeline, tmp_path: Path) -> None:
    paths = write(pipeline, tmp_path)
    write_merged(load(paths), tmp_path / "merged.json.gz")
    _assert_alike(as_data(_diagnosis(paths)), as_data(_diagnosis([tmp_path / "merged.json.gz"])), 1e-6)


@pytest.mark.parametrize("name", ["sglang-pp2-h200/", "vllm-pp2-h200/graphs", "vllm-pp2-h200/eager"])
def test_merging_real_files_changes_nothing(name: str, tmp_path: Path) -> None:
    paths = sorted(DATA.glob(f"{name}*.gz"))
    write_merged(load(paths), tmp_path / "merged.json")
    _assert_alike(as_data(_diagnosis(paths)), as_data(_diagnosis([tmp_path / "merged.json"])), 1e-3)


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda p: f"{p.cohorts}x{p.stages}")
@pytest.mark.parametrize("scale", [0.5, 7.0])
def test_scaling_time_keeps_shares_and_gains(pipeline: Pipeline, scale: float, tmp_path: Path) -> None:
    contents = traces(pipeline)
    (tmp_path / "b").mkdir()
    plain = _diagnosis(_paths(contents, tmp_path))
    scaled = _diagnosis(_paths([_moved(content, scale=scale) for content in contents], tmp_path / "b"))
    before, after = as_data(plain), as_data(scaled)
    for old, new in zip(before["ranks"], after["ranks"], strict=True):
        _assert_alike(old["decomposition"], new["decomposition"], 5e-3)
    _assert_alike(before["herd"], after["herd"], 5e-3)
    assert _verdicts(plain) == _verdicts(scaled)
    for old, new in zip(before["verdicts"], after["verdicts"], strict=True):
        _assert_alike(old["gain"], new["gain"], 2e-2)
    assert after["throughput"]["measured"] == pytest.approx(before["throughput"]["measured"] / scale, rel=1e-3)


def test_added_communication_wait_is_waiting(tmp_path: Path) -> None:
    """Let every receive be posted earlier: what was bubble is now waiting, and nothing else is different."""
    contents = traces(Pipeline((16,), 2))
    patient = copy.deepcopy(contents)
    kernels = sorted((e for e in patient[1]["traceEvents"] if e.get("cat") == "kernel"), key=lambda e: e["ts"])
    for previous, event in itertools.pairwise(kernels):
        if event["args"].get("Collective name") == "recv":
            event["dur"] = round(event["dur"] / 2, 3)
            event["ts"] = round(event["ts"] + event["dur"], 3)
            assert previous["ts"] + previous["dur"] <= event["ts"] + 0.01
    (tmp_path / "b").mkdir()
    long, short = _diagnosis(_paths(contents, tmp_path)), _diagnosis(_paths(patient, tmp_path / "b"))
    more, less = (found.evidence.ranks[1].decomposition for found in (long, short))
    assert more.comm_wait > less.comm_wait + 0.1
    assert more.comm_wait + more.bubble + more.host == pytest.approx(less.comm_wait + less.bubble + less.host, abs=0.01)
    assert more.compute == pytest.approx(less.compute, abs=0.005)
    assert more.wire == pytest.approx(less.wire, abs=0.005)
    assert _verdicts(long) == _verdicts(short)
