"""Profiles recorded on demand: the traces, read with the knobs of that moment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.diagnosis.diagnose import diagnose
from probes.diagnosis.from_profile import evidence_from_profile
from probes.traces.events import TraceError
from sessions.knobs import Knobs
from sessions.messages import KnobState, Message
from tests.probes.diagnosis.emulation import Setup, run
from tests.probes.traces.synthetic import Pipeline, write


def _knobs(depth: int) -> list[Message]:
    return [KnobState(source="e", t_ns=0, knobs=Knobs(async_depth=depth, cuda_graphs=True))]


@pytest.mark.parametrize(("depth", "cause"), [(1, "shallow_depth"), (4, "herd")])
def test_the_knobs_tell_a_herd_from_too_little_depth(depth: int, cause: str, tmp_path: Path) -> None:
    """One micro-batch of 16 goes round four stages: because only one may, or although four may."""
    paths = write(Pipeline((16,), 4, engine="torch"), tmp_path)
    found = diagnose(evidence_from_profile(paths, _knobs(depth)))
    assert [verdict.hypothesis for verdict in found.causes] == [cause]


def test_traces_without_gpu_work_fall_back_to_spans(tmp_path: Path) -> None:
    trace = tmp_path / "rank0.json"
    trace.write_text(json.dumps({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2}]}))
    messages = run(Setup((8,), Knobs(8, "greedy", 256, True))).messages
    found = diagnose(evidence_from_profile([trace], messages))
    assert [verdict.hypothesis for verdict in found.causes] == ["herd"]
    assert any("spans are used instead" in note for note in found.evidence.notes)
    with pytest.raises(TraceError, match="no GPU events"):
        evidence_from_profile([trace], _knobs(1))
