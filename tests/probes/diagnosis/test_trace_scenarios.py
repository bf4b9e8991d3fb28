"""Labelled deployments as traces: each fault alone, pairs and healthy ones, all the way from file to verdict."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from probes.diagnosis.diagnose import Diagnosis, diagnose
from probes.diagnosis.from_traces import evidence_from_traces
from probes.diagnosis.verdict import Hypothesis
from probes.traces.load import load
from tests.probes.diagnosis.conftest import REPORT
from tests.probes.traces import synthetic, synthetic_ep
from tests.probes.traces.synthetic import Pipeline
from tests.probes.traces.synthetic_ep import Group

Faults = tuple[Hypothesis, ...]


def _heavy_last(stage: int, size: int) -> float:
    return (2.0 + 0.4 * size) * (1.8 if stage == 3 else 1.0)


def _dense(stage: int, size: int) -> float:
    return 4.0


CASES: dict[str, tuple[Pipeline | Group, Faults]] = {
    "herd on 2": (Pipeline((16,), 2), ("herd",)),
    "herd on 4": (Pipeline((16,), 4), ("herd",)),
    "herd on 8, vllm": (Pipeline((32,), 8, engine="vllm"), ("herd",)),
    "two waves on 8": (Pipeline((16, 16), 8), ("herd",)),
    "three waves on 8": (Pipeline((11, 11, 10), 8), ("herd",)),
    "uneven on 4": (Pipeline((14, 6, 6, 6), 4), ("uneven_split",)),
    "uneven on 2": (Pipeline((12, 4), 2), ("uneven_split",)),
    "heavy last stage": (Pipeline((4, 4, 4, 4), 4, tau=_heavy_last), ("stage_imbalance",)),
    "eager": (Pipeline((2, 2, 2, 2), 4, launch=0.5), ("launch_overhead",)),
    "eager, vllm, one request": (Pipeline((1,), 2, launch=0.6, engine="vllm"), ("launch_overhead",)),
    "slow links": (Pipeline((4, 4, 4, 4), 4, wire=4.0), ("interconnect",)),
    "slow links on 2": (Pipeline((8, 8), 2, wire=6.0), ("interconnect",)),
    "slow host": (Pipeline((4, 4, 4, 4), 4, host=15.0), ("host",)),
    "slow host, vllm": (Pipeline((8, 8), 2, host=12.0, engine="vllm"), ("host",)),
    "busy experts on one rank": (Group((0.3, 0.3, 0.55, 0.3)), ("expert_imbalance",)),
    "busy experts on one of 8": (Group((0.3,) * 7 + (0.5,), named=False), ("expert_imbalance",)),
    "slow all-reduces": (Group((0.3,) * 4, wire=0.5), ("interconnect",)),
    "eager herd": (Pipeline((16,), 4, launch=0.9, engine="vllm"), ("launch_overhead", "herd")),
    "herd and heavy last stage": (Pipeline((16,), 4, tau=_heavy_last), ("herd", "stage_imbalance")),
    "herd and slow host": (Pipeline((16,), 4, host=20.0), ("host", "herd")),
    "herd and slow links": (Pipeline((16,), 4, wire=6.0), ("interconnect", "herd")),
    "healthy on 2": (Pipeline((8, 8), 2), ()),
    "healthy on 4": (Pipeline((4, 4, 4, 4), 4), ()),
    "healthy on 8, vllm": (Pipeline((2,) * 8, 8, engine="vllm"), ()),
    "healthy, requests that do not divide": (Pipeline((2, 2, 1, 1), 4), ()),
    "healthy, one request": (Pipeline((1,), 4), ()),
    "healthy, two requests on 4": (Pipeline((1, 1), 4), ()),
    "healthy, clocks far apart": (Pipeline((4, 4, 4, 4), 4, clock=(0, 5, -300, 12345)), ()),
    "healthy, dense": (Pipeline((8, 8), 2, tau=_dense, expert_share=0.0), ()),
    "healthy experts": (Group((0.3,) * 4), ()),
    "healthy experts, graph kernels without arguments": (Group((0.3,) * 8, named=False), ()),
}


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Diagnosis]:
    found = {}
    for name, (made, _) in CASES.items():
        folder: Path = tmp_path_factory.mktemp("traces")
        paths = synthetic.write(made, folder) if isinstance(made, Pipeline) else synthetic_ep.write(made, folder)
        found[name] = diagnose(evidence_from_traces(load(paths)))
    return found


def test_every_case_gets_its_faults_and_no_others(diagnosed: dict[str, Diagnosis]) -> None:
    wrong = {}
    counts: Counter[bool] = Counter()
    for name, (_, faults) in CASES.items():
        named = {verdict.hypothesis for verdict in diagnosed[name].causes}
        counts[named == set(faults)] += 1
        if named != set(faults):
            wrong[name] = (sorted(faults), sorted(named))
    REPORT.append(f"{counts[True]} of {len(CASES)} traced deployments diagnosed exactly")
    assert not wrong


@pytest.mark.parametrize("name", [name for name, (_, faults) in CASES.items() if len(faults) > 1])
def test_the_larger_gain_comes_first(diagnosed: dict[str, Diagnosis], name: str) -> None:
    gains = [verdict.gain.mid for verdict in diagnosed[name].causes if verdict.gain is not None]
    assert gains == sorted(gains, reverse=True)
    assert diagnosed[name].causes[0].hypothesis == CASES[name][1][0]


@pytest.mark.parametrize("name", [name for name, (made, _) in CASES.items() if isinstance(made, Pipeline)])
def test_replayed_times_give_the_measured_throughput(diagnosed: dict[str, Diagnosis], name: str) -> None:
    found = diagnosed[name]
    assert found.replayed_tokens_per_s is not None
    assert found.replayed_tokens_per_s.mid == pytest.approx(found.measured_tokens_per_s, rel=0.03)


def test_a_dense_models_herd_gains_nothing(tmp_path: Path) -> None:
    pipeline = Pipeline((16,), 2, tau=_dense, expert_share=0.0)
    (cause,) = diagnose(evidence_from_traces(load(synthetic.write(pipeline, tmp_path)))).causes
    assert cause.hypothesis == "herd"
    assert cause.gain is not None and cause.gain.mid == pytest.approx(1.0, abs=0.05)
