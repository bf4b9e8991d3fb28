"""Comparisons of runs whose truth is known."""

from __future__ import annotations

import random

import msgspec
import pytest

from sessions.compare.compare import Comparison, WorkloadMismatch, compare_runs
from sessions.compare.markdown import as_markdown
from sessions.compare.text import as_text
from sessions.knobs import Knobs
from sessions.results import GpuConditions

from .synthetic import noisy, point, result


def claims(comparison: Comparison) -> list[str]:
    return [row.verdict for pair in comparison.pairs for row in pair.rows if row.verdict != "~"]


def test_equal_runs_are_called_different_at_most_5_percent_of_the_time():
    """1000 pairs, any claim in any of five rows counts. The uncorrected p of a row shows that the test has its level,
    so that the corrected count is not small for want of power."""
    rng = random.Random(8)
    false = raw = 0
    for _ in range(1000):
        comparison = compare_runs([noisy(rng, 8, (4,)), noisy(rng, 8, (4,))])
        false += bool(claims(comparison))
        raw += comparison.pairs[0].rows[0].p <= 0.05
    assert false <= 50
    assert 30 <= raw <= 50 + 3 * (1000 * 0.05 * 0.95) ** 0.5


def test_three_equal_runs_against_a_base_keep_the_level_too():
    rng = random.Random(3)
    false = sum(bool(claims(compare_runs([noisy(rng, 8, (4,)) for _ in range(4)]))) for _ in range(200))
    assert false <= 10 + 3 * (200 * 0.05 * 0.95) ** 0.5


def test_a_real_difference_is_found_with_its_sign_and_size():
    rng = random.Random(1)
    comparison = compare_runs([noisy(rng, 8), noisy(rng, 8, speed=1.4)])
    (pair,) = comparison.pairs
    assert {row.verdict for row in pair.rows} == {"better"}
    for row in pair.rows:
        truth = 1.4 if row.metric == "output_tokens_per_s" else 1 / 1.4
        assert row.ratio_low < truth < row.ratio_high
        assert row.ratio == pytest.approx(truth, rel=0.08)
    back = compare_runs([noisy(rng, 8, speed=1.4), noisy(rng, 8)])
    assert {row.verdict for row in back.pairs[0].rows} == {"worse"}


def test_the_ratios_interval_covers_the_truth_as_often_as_it_says():
    rng = random.Random(7)
    hits = 0
    for _ in range(500):
        row = compare_runs([noisy(rng, 6, (1,)), noisy(rng, 6, (1,), speed=1.1)]).pairs[0].rows[0]
        hits += row.ratio_low <= 1.1 <= row.ratio_high
    assert hits / 500 >= 0.93


def test_three_against_three_claims_nothing_however_large_the_difference():
    rng = random.Random(2)
    comparison = compare_runs([noisy(rng, 3, (1,)), noisy(rng, 3, (1,), speed=10.0)])
    assert claims(comparison) == []
    assert comparison.fewest > 3
    assert f"repeat at least {comparison.fewest} times" in as_text(comparison)


def test_one_repetition_has_a_ratio_but_no_verdict():
    rng = random.Random(2)
    row = compare_runs([noisy(rng, 1, (1,)), noisy(rng, 1, (1,), speed=2.0)]).pairs[0].rows[0]
    assert row.p is None and row.verdict == "~" and row.ratio == pytest.approx(2, rel=0.2)


def test_an_insignificant_row_says_what_would_decide_it():
    rng = random.Random(5)
    row = compare_runs([noisy(rng, 8, (1,)), noisy(rng, 8, (1,), speed=1.02)]).pairs[0].rows[0]
    assert row.verdict == "~" and row.needed is not None and row.needed > 8
    assert 1.02 < row.detectable < 1.2


def test_different_workloads_are_refused_unless_forced():
    rng = random.Random(0)
    runs = [noisy(rng, 5), noisy(rng, 5, key="other")]
    with pytest.raises(WorkloadMismatch, match="different workloads: 'work' and 'other'"):
        compare_runs(runs)
    assert "different workloads" in compare_runs(runs, force=True).pairs[0].warnings[0]


def test_runs_without_a_common_load_are_refused():
    rng = random.Random(0)
    with pytest.raises(ValueError, match="no load in common"):
        compare_runs([noisy(rng, 5, (1,)), noisy(rng, 5, (2,))])
    with pytest.raises(ValueError, match="at least two"):
        compare_runs([noisy(rng, 5)])


def test_what_differed_is_named():
    rng = random.Random(0)
    base = noisy(rng, 5, (1,))
    hot = GpuConditions(index=0, name="G", sm_clock_hertz=1.2e9, throttled=["sw_power_cap"])
    cool = GpuConditions(index=0, name="G", sm_clock_hertz=1.8e9)
    base = msgspec.structs.replace(
        base, points=[msgspec.structs.replace(base.points[0], gpus=[cool], outputs_digest="a")]
    )
    other = msgspec.structs.replace(
        base,
        knobs=Knobs(admission="rebalance"),
        versions={"herdscope": "2"},
        points=[msgspec.structs.replace(base.points[0], gpus=[hot], outputs_digest="b")],
    )
    pair = compare_runs([base, other]).pairs[0]
    assert [(d.what, d.base, d.other) for d in pair.differences] == [
        ("knobs.admission", "greedy", "rebalance"),
        ("versions.herdscope", "1", "2"),
        ("C=1 gpu0 throttled", "none", "sw_power_cap"),
        ("C=1 gpu0 clock", "1800 MHz", "1200 MHz"),
        ("C=1 output tokens (digest)", "a", "b"),
    ]
    assert any("GPUs were held back (sw_power_cap)" in warning for warning in pair.warnings)


def test_the_pareto_front_is_the_points_that_nothing_beats():
    def at(concurrency: int, rate: float):
        return point(concurrency, {"output_tokens_per_s": [rate] * 5})

    slow = result([at(1, 100.0), at(10, 400.0)], label="slow")
    fast = result([at(1, 90.0), at(10, 800.0)], label="fast")
    found = {(p.run, p.load): p for p in compare_runs([slow, fast]).pareto}
    assert {key for key, p in found.items() if p.best} == {("slow", "C=1"), ("fast", "C=10")}
    assert found["fast", "C=10"].tokens_per_s_per_device == 200.0


def test_text_and_markdown_say_the_same():
    rng = random.Random(1)
    comparison = compare_runs([noisy(rng, 8, label="a|b"), noisy(rng, 8, speed=1.4, label="<c>")])
    text, markdown = as_text(comparison), as_markdown(comparison)
    assert text.count("better") == 10 and markdown.count("**better**") == 10
    assert "a\\|b" in markdown and "<c>" not in markdown
    assert "n=8+8" in text and "Mann-Whitney" in text and "Mann-Whitney" in markdown


def test_a_comparison_survives_json():
    rng = random.Random(1)
    comparison = compare_runs([noisy(rng, 5), noisy(rng, 5)])
    assert msgspec.json.decode(msgspec.json.encode(comparison), type=Comparison) == comparison
