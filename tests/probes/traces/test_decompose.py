"""Each rank's time accounted for, against pipelines whose parts are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.traces.decompose import TimeSplit, common_window, decode_window, split_time
from probes.traces.load import load
from probes.traces.steps import steps
from tests.probes.traces.synthetic import Pipeline, write


def _splits(pipeline: Pipeline, folder: Path) -> list[TimeSplit]:
    found = load(write(pipeline, folder))
    window = decode_window([steps(rank) for rank in found.ranks]) or common_window(found)
    return [split_time(found, i, window) for i in range(len(found.ranks))]


@pytest.mark.parametrize(
    "pipeline",
    [
        Pipeline((16,), 2),
        Pipeline((4, 4, 4, 4), 4),
        Pipeline((4, 4), 2, launch=0.6),
        Pipeline((4, 4, 4), 3, host=9.0),
        Pipeline((9, 2), 3, wire=2.0, engine="vllm"),
    ],
)
def test_the_parts_sum_to_the_whole(pipeline: Pipeline, tmp_path: Path) -> None:
    for split in _splits(pipeline, tmp_path):
        assert sum(split.fractions.values()) == pytest.approx(1.0, abs=1e-9)
        assert all(share >= 0 for share in split.fractions.values())


def test_a_herd_on_two_stages_waits_half_the_time(tmp_path: Path) -> None:
    first, last = _splits(Pipeline((16,), 2, host=0.0, wire=0.01), tmp_path)
    for split in (first, last):
        assert split.fractions["compute"] == pytest.approx(0.5, abs=0.03)
    assert last.fractions["comm_wait"] == pytest.approx(0.5, abs=0.03), "the last stage spins in its receive"
    assert first.fractions["bubble"] == pytest.approx(0.5, abs=0.03), "the first has nothing to do"


def test_eager_steps_leave_launch_gaps(tmp_path: Path) -> None:
    pipeline = Pipeline((8, 8), 2, launch=0.6)
    kernel = pipeline.tau(0, 8) / pipeline.kernels
    for split in _splits(pipeline, tmp_path):
        busy = split.fractions["compute"] + split.fractions["launch_gap"]
        assert split.fractions["launch_gap"] / busy == pytest.approx(1 - kernel / 0.6, abs=0.05)


def test_host_time_shows_in_the_first_stage(tmp_path: Path) -> None:
    pipeline = Pipeline((16,), 2, host=8.0)
    lap = 2 * pipeline.tau(0, 16) + 8.0
    first, _ = _splits(pipeline, tmp_path)
    assert first.fractions["host"] == pytest.approx(8.0 / lap, abs=0.03)


def test_transfer_is_the_shortest_participants_time(tmp_path: Path) -> None:
    pipeline = Pipeline((16,), 2, wire=3.0, host=0.0)
    lap = 2 * pipeline.tau(0, 16) + 6.0
    _, last = _splits(pipeline, tmp_path)
    assert last.fractions["wire"] == pytest.approx(3.0 / lap, abs=0.03)
    assert last.comm_waiting < last.comm
