"""Idle, compute and non-compute time against the figures that Holistic Trace Analysis gives for public traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.traces.breakdown import breakdown
from probes.traces.load import load
from probes.traces.trace import RankTrace

SAMPLED = {0: (321378, 106252, 172428, 600058), 1: (328671, 135548, 136455, 600674)}
DLRM = {0: (6419, 1034, 5556, 13009), 1: (6428, 1246, 11075, 18749)}


def _microseconds(trace: RankTrace, whole: bool) -> tuple[float, ...]:
    found = breakdown(trace, whole)
    return tuple(part / 1000 for part in (found.idle, found.compute, found.non_compute, found.span))


@pytest.mark.parametrize("rank", [0, 1])
def test_sampled_ranks(shared_data: Path, rank: int) -> None:
    (trace,) = load([shared_data / f"kineto/sampled_rank-{rank}.json.gz"]).ranks
    assert _microseconds(trace, whole=False) == SAMPLED[rank]


def test_eight_ranks(shared_data: Path) -> None:
    ranks = load([shared_data / "kineto/dlrm_kineto.tar.gz"]).ranks
    assert len(ranks) == 8
    for rank, expected in DLRM.items():
        assert _microseconds(ranks[rank], whole=True) == expected


@pytest.mark.parametrize("name", ["sglang-pp2-h200", "vllm-pp2-h200"])
def test_the_parts_sum_to_the_span(shared_data: Path, name: str) -> None:
    for path in (shared_data / name).glob("*.gz"):
        found = breakdown(load([path]).ranks[0])
        assert found.idle + found.compute + found.non_compute == found.span
        assert min(found.idle, found.compute, found.non_compute) >= 0
