"""Labelled deployments on the emulated cluster: the right faults, no other, and gains as predicted."""

from __future__ import annotations

from collections import Counter

import pytest

from probes.diagnosis.diagnose import Diagnosis
from probes.diagnosis.verdict import NAMES, Verdict
from tests.probes.diagnosis.conftest import REPORT
from tests.probes.diagnosis.emulation import run
from tests.probes.diagnosis.scenarios import HEALTHY, SCENARIOS, Scenario


@pytest.fixture(scope="module")
def diagnosed() -> list[tuple[Scenario, Diagnosis, float]]:
    found = []
    for scenario in SCENARIOS:
        measured = run(scenario.setup)
        found.append((scenario, measured.diagnosis(), measured.tokens_per_s))
    return found


def _named(diagnosis: Diagnosis) -> set[str]:
    return {verdict.hypothesis for verdict in diagnosis.causes}


def test_the_set_is_large_enough() -> None:
    assert len(SCENARIOS) >= 24
    alone = {fault for scenario in SCENARIOS if len(scenario.faults) == 1 for fault in scenario.faults}
    assert alone == set(NAMES)


def test_the_right_faults_are_named(diagnosed: list[tuple[Scenario, Diagnosis, float]]) -> None:
    counts: Counter[tuple[str, bool, str]] = Counter()
    wrong = []
    for scenario, diagnosis, _ in diagnosed:
        if _named(diagnosis) != set(scenario.faults):
            wrong.append(f"{scenario.name}: {sorted(scenario.faults)} but said {sorted(_named(diagnosis))}")
        for verdict in diagnosis.verdicts:
            counts[verdict.hypothesis, verdict.hypothesis in scenario.faults, verdict.verdict] += 1
    REPORT.append(_matrix(counts))
    REPORT.append(f"{len(diagnosed) - len(wrong)} of {len(diagnosed)} deployments diagnosed exactly")
    assert len(wrong) * 24 <= len(diagnosed), wrong


def test_healthy_deployments_are_not_accused(diagnosed: list[tuple[Scenario, Diagnosis, float]]) -> None:
    healthy = {scenario.name for scenario in HEALTHY}
    accused = {s.name: _named(d) for s, d, _ in diagnosed if s.name in healthy and d.causes}
    assert not accused


def test_gains_come_true(diagnosed: list[tuple[Scenario, Diagnosis, float]]) -> None:
    predictions = []
    for scenario, diagnosis, before in diagnosed:
        by_name: dict[str, Verdict] = {verdict.hypothesis: verdict for verdict in diagnosis.verdicts}
        for fault, setup in scenario.mended.items():
            gain = by_name[fault].gain
            got = run(setup).tokens_per_s / before
            predictions.append((scenario.name, fault, gain, got, gain is not None and gain.contains(got)))
    kept = [prediction for prediction in predictions if prediction[-1]]
    missed = [f"{name}: {fault} {gain}, got {got:.2f}" for name, fault, gain, got, inside in predictions if not inside]
    REPORT.append(f"{len(kept)} of {len(predictions)} predicted gains within their band; missed: {missed or 'none'}")
    assert len(kept) >= 0.9 * len(predictions), missed


def _matrix(counts: Counter[tuple[str, bool, str]]) -> str:
    lines = [f"{'':17s}{'fault present':^26s}{'fault absent':^26s}", f"{'':17s}" + "   holds refuted unknown" * 2]
    for hypothesis in NAMES:
        cells = [
            counts[hypothesis, present, word] for present in (True, False) for word in ("holds", "refuted", "unknown")
        ]
        lines.append(f"{hypothesis:17s}" + "".join(f"{cell:8d}" for cell in cells))
    return "\n".join(lines)
