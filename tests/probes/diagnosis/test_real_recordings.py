"""Verdicts on recordings of real servers: two GPUs, pipeline parallel, and a public set of eight ranks."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from probes.diagnosis.diagnose import Diagnosis, diagnose
from probes.diagnosis.from_scrape import evidence_from_scrape
from probes.diagnosis.from_traces import evidence_from_traces
from probes.diagnosis.report import notes
from probes.diagnosis.verdict import Verdict
from probes.traces.load import load

DATA = Path(__file__).resolve().parents[2] / "data"
SGLANG = "traces/sglang-pp2-h200/*.json.gz"
GRAPHS = "traces/vllm-pp2-h200/graphs.*.gz"
EAGER = "traces/vllm-pp2-h200/eager.*.gz"


@pytest.fixture(scope="module")
def diagnoses() -> dict[str, Diagnosis]:
    return {
        pattern: diagnose(evidence_from_traces(load(sorted(DATA.glob(pattern))))) for pattern in (SGLANG, GRAPHS, EAGER)
    }


def _by_name(diagnosis: Diagnosis) -> dict[str, Verdict]:
    return {verdict.hypothesis: verdict for verdict in diagnosis.verdicts}


@pytest.mark.parametrize("pattern", [SGLANG, GRAPHS])
def test_servers_with_graphs_run_as_one_herd(diagnoses: dict[str, Diagnosis], pattern: str) -> None:
    found = diagnoses[pattern]
    assert [verdict.hypothesis for verdict in found.causes] == ["herd"]
    assert found.herd.waves == pytest.approx(1.0, abs=0.02)
    assert pytest.approx(1.0, abs=0.01) == found.herd.L
    assert found.herd.H == 1.0
    assert found.evidence.overlap is not None and f"{found.evidence.overlap:.3f}" == "0.000"
    for name in ("interconnect", "launch_overhead"):
        assert _by_name(found)[name].verdict == "refuted"


@pytest.mark.parametrize(
    ("pattern", "compute"), [(SGLANG, (0.287, 0.327)), (GRAPHS, (0.022, 0.021)), (EAGER, (0.094, 0.099))]
)
def test_compute_shares_of_the_decode_window(
    diagnoses: dict[str, Diagnosis], pattern: str, compute: tuple[float, float]
) -> None:
    shares = [rank.decomposition.compute for rank in diagnoses[pattern].evidence.ranks]
    assert [round(share, 3) for share in shares] == list(compute)


@pytest.mark.parametrize(("pattern", "operation"), [(SGLANG, "recv"), (GRAPHS, "broadcast"), (EAGER, "broadcast")])
def test_the_first_ranks_communication_is_waiting(
    diagnoses: dict[str, Diagnosis], pattern: str, operation: str
) -> None:
    communication = diagnoses[pattern].evidence.communication
    assert communication is not None
    main, _, waiting = communication.waiting_by_rank[0]
    assert main == operation
    assert waiting > 0.98


def test_the_eager_server_is_launch_bound_with_the_herd_behind_it(diagnoses: dict[str, Diagnosis]) -> None:
    found = diagnoses[EAGER]
    assert [verdict.hypothesis for verdict in found.causes] == ["launch_overhead", "herd"]
    launch = found.causes[0].gain
    assert launch is not None and launch.low > 3.0, "graphs gave 4 times on these machines"
    assert _by_name(found)["interconnect"].verdict == "refuted"


def test_what_the_profiler_did_is_told(diagnoses: dict[str, Diagnosis]) -> None:
    assert any("Python stacks on" in note for note in notes(diagnoses[GRAPHS]))
    assert any("five times as long" in note for note in notes(diagnoses[GRAPHS]))
    assert not any("stacks" in note for note in notes(diagnoses[SGLANG]))


def test_replayed_times_give_the_measured_throughput(diagnoses: dict[str, Diagnosis]) -> None:
    for found in diagnoses.values():
        assert found.replayed_tokens_per_s is not None
        assert found.replayed_tokens_per_s.mid == pytest.approx(found.measured_tokens_per_s, rel=0.06)


def test_a_single_rank_tells_what_is_missing() -> None:
    path = sorted(DATA.glob(SGLANG))[0]
    found = diagnose(evidence_from_traces(load([path])))
    assert not found.causes
    assert _by_name(found)["herd"].verdict == "unknown"
    assert "other ranks" in _by_name(found)["interconnect"].missing


def test_slots_of_a_scrape() -> None:
    path = DATA / "servers/sglang_metrics_pp2.txt"
    found = diagnose(evidence_from_scrape(path.read_text(), path.name))
    assert [verdict.hypothesis for verdict in found.causes] == ["herd"]
    assert found.cohorts == (15, 1)
    assert found.herd.L is None and "spans" in found.herd.why["L"]
    assert _by_name(found)["launch_overhead"].verdict == "refuted", "the scrape counts graph replays"
    assert _by_name(found)["interconnect"].verdict == "unknown"


def test_a_scrape_without_stages_tells_nothing_of_the_herd() -> None:
    path = DATA / "servers/vllm_metrics_pp2.txt"
    found = diagnose(evidence_from_scrape(path.read_text(), path.name))
    assert not found.causes
    assert any("nothing by stage" in blind for blind in found.evidence.cannot_see)


def test_eight_ranks_wait_for_each_other(shared_data: Path) -> None:
    found = diagnose(evidence_from_traces(load([shared_data / "kineto/dlrm_kineto.tar.gz"])))
    communication = found.evidence.communication
    assert communication is not None
    assert communication.waiting == pytest.approx(0.96, abs=0.01)
    assert _by_name(found)["interconnect"].verdict == "refuted"
    assert not found.causes


def test_two_ranks_of_many_tell_what_is_missing(shared_data: Path) -> None:
    found = diagnose(evidence_from_traces(load(sorted(shared_data.glob("kineto/sampled_rank-*")))))
    assert _by_name(found)["interconnect"].verdict == "unknown"
    assert any("126 of 128 ranks missing" in note for note in found.evidence.notes)


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9])
def test_no_verdict_rests_on_a_cut_trace(keep: float, tmp_path: Path) -> None:
    first, last = sorted(DATA.glob(SGLANG))
    whole = gzip.decompress(last.read_bytes())
    cut = tmp_path / last.name.removesuffix(".gz")
    cut.write_bytes(whole[: int(len(whole) * keep)])
    found = diagnose(evidence_from_traces(load([first, cut])))
    assert {verdict.verdict for verdict in found.verdicts} == {"unknown"}
    assert any("cut off" in note for note in found.evidence.notes)
