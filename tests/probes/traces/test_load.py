"""Sets of traces: ranks told apart, clocks aligned, mistakes refused in one line."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from probes.traces.events import TraceError
from probes.traces.load import load
from probes.traces.steps import steps
from tests.probes.traces.synthetic import Pipeline, traces, write

HERD = Pipeline((16,), 2)


def _dump(content: dict[str, Any], path: Path) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_clocks_are_aligned_by_their_communication(tmp_path: Path) -> None:
    ahead = (0.0, 5.0, -300.0, 12345.0)
    found = load(write(Pipeline((4, 4, 4, 4), 4, clock=ahead), tmp_path))
    assert found.residual is not None and found.residual < 1000
    for offset, expected in zip(found.offsets, ahead, strict=True):
        assert offset == pytest.approx(expected * 1e6, abs=10_000)


def test_a_folder_and_an_archive_read_as_their_files(tmp_path: Path) -> None:
    paths = write(HERD, tmp_path)
    archive = tmp_path / "run.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for path in paths:
            tar.add(path, path.name)
    sources = [load(paths), load([archive])]
    for path in [*paths, archive]:
        path.rename(path.with_name(path.name + ".kept") if path == archive else path)
    (tmp_path / "run.tar.gz.kept").unlink()
    sources.append(load([tmp_path]))
    assert {tuple(rank.rank for rank in found.ranks) for found in sources} == {(0, 1)}


def test_two_runs_of_different_engines(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(TraceError, match=r"sglang.*vllm.*two runs mixed"):
        load([write(HERD, tmp_path)[0], write(Pipeline((16,), 2, engine="vllm"), other)[1]])


def test_two_runs_of_different_sizes(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(TraceError, match=r"2 ranks.*of 4.*two runs mixed"):
        load([write(HERD, tmp_path)[0], write(Pipeline((16,), 4), other)[1]])


def test_two_runs_of_different_loads(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(TraceError, match="two runs mixed"):
        load([write(HERD, tmp_path)[0], write(Pipeline((5, 7), 2, start=90000.0), other)[1]])


def test_the_same_rank_twice(tmp_path: Path) -> None:
    path = write(HERD, tmp_path)[0]
    with pytest.raises(TraceError, match="both of rank 0"):
        load([path, path])


def test_no_gpu_events(tmp_path: Path) -> None:
    content = traces(HERD)[0]
    content["traceEvents"] = [e for e in content["traceEvents"] if e.get("cat") != "kernel"]
    with pytest.raises(TraceError, match="no GPU events"):
        load([_dump(content, tmp_path / "cpu.json")])


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    found = load(write(Pipeline((4, 4, 4, 4), 4), tmp_path)[:3])
    assert found.missing == [3]
    assert any("1 of 4 ranks missing (3)" in note for note in found.notes)


def test_a_cut_file_is_noted(tmp_path: Path) -> None:
    paths = write(HERD, tmp_path)
    whole = gzip.decompress(paths[1].read_bytes())
    paths[1].write_bytes(whole[: int(len(whole) * 0.8)])
    found = load(paths)
    assert any("cut off" in note for note in found.notes)
    assert len(found.ranks) == 2


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no trace files"):
        load([tmp_path])


def test_a_rank_that_starts_recording_late(tmp_path: Path) -> None:
    contents = traces(Pipeline((4, 4), 2, clock=(0.0, 77.0)))
    begin = 1000.0 + 77.0 + 30.0
    contents[1]["traceEvents"] = [e for e in contents[1]["traceEvents"] if e["ts"] == 0 or e["ts"] > begin * 1000]
    paths = [_dump(content, tmp_path / f"x-TP-0-PP-{i}.trace.json") for i, content in enumerate(contents)]
    found = load(paths)
    assert found.offsets[1] is not None
    lap = (2 * (2.0 + 0.4 * 4) + 2 * 0.01 + 0.05) * 1e6
    distance = (found.offsets[1] - 77.0 * 1e6) % lap
    assert min(distance, lap - distance) < 100_000, "steady decode is aligned but for whole rounds"


def test_graph_replays_map_one_launch_to_many_kernels(tmp_path: Path) -> None:
    first = steps(load(write(HERD, tmp_path)).ranks[0])[0]
    assert (first.launches, first.kernels, first.graph) == (1, HERD.kernels, True)


def test_eager_steps_launch_every_kernel(tmp_path: Path) -> None:
    first = steps(load(write(Pipeline((16,), 2, launch=0.5), tmp_path)).ranks[0])[0]
    assert (first.launches, first.kernels, first.graph) == (HERD.kernels, HERD.kernels, False)


def test_operators_that_carry_a_stream_are_not_gpu_work(tmp_path: Path) -> None:
    contents = traces(HERD)
    triton = {"ph": "X", "cat": "cpu_op", "name": "triton_red_fused_0", "pid": 100, "tid": 1, "args": {"stream": 7}}
    before = len(load([_dump(contents[0], tmp_path / "a.json")]).ranks[0].ops)
    contents[0]["traceEvents"].append({**triton, "ts": 1_000_000.0, "dur": 50.0})
    assert len(load([_dump(contents[0], tmp_path / "b.json")]).ranks[0].ops) == before


def test_merged_files_are_told_apart_by_labels(tmp_path: Path) -> None:
    events = []
    for rank, content in enumerate(traces(Pipeline((4, 4), 2))):
        label = f"[TP00-PP{rank:02d}]"
        events += [{**event, "pid": f"{label} {event['pid']}"} for event in content["traceEvents"]]
    found = load([_dump({"traceEvents": events}, tmp_path / "merged.json")])
    assert [(r.rank, r.stage) for r in found.ranks] == [(0, 0), (1, 1)]


def test_merged_files_without_labels_are_told_apart_by_gpu(tmp_path: Path) -> None:
    events = []
    for rank, content in enumerate(traces(Pipeline((4, 4), 2))):
        own = content["traceEvents"]
        events += [{**event, "pid": rank if event["pid"] == 0 else 100 + rank} for event in own]
    found = load([_dump({"traceEvents": events}, tmp_path / "merged.json")])
    assert len(found.ranks) == 2
    assert all(len(rank.launches) for rank in found.ranks)
