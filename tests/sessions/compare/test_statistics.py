"""Our exact tests against scipy's, against enumeration, and against the theory they come from."""

from __future__ import annotations

import itertools
import math
import random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sessions.compare.holm import holm
from sessions.compare.intervals import median_interval
from sessions.compare.mann_whitney import shift, u_test
from sessions.compare.mann_whitney import smallest_p as smallest_u_p
from sessions.compare.repetitions import detectable, fewest, needed
from sessions.compare.signed_rank import signed_rank
from sessions.compare.signed_rank import smallest_p as smallest_signed_p

DISTINCT = st.lists(st.floats(-100, 100, allow_nan=False), min_size=2, max_size=16, unique_by=abs)
TIED = st.lists(st.integers(0, 4), min_size=2, max_size=9)


@given(values=DISTINCT, cut=st.integers(1, 15))
def test_u_test_equals_scipys_exact_test(values, cut):
    first, second = values[: min(cut, len(values) - 1)], values[min(cut, len(values) - 1) :]
    ours = u_test(first, second)
    theirs = stats.mannwhitneyu(second, first, method="exact")
    assert ours.p == pytest.approx(theirs.pvalue, abs=1e-12)
    assert ours.superiority * len(first) * len(second) == pytest.approx(theirs.statistic)


@given(values=TIED, cut=st.integers(1, 8))
def test_u_test_with_ties_equals_the_enumeration_of_all_assignments(values, cut):
    cut = min(cut, len(values) - 1)
    ranks = stats.rankdata(values)
    centre = sum(ranks) * (len(values) - cut) / len(values)
    seen = abs(sum(ranks[cut:]) - centre)
    sums = [abs(sum(chosen) - centre) for chosen in itertools.combinations(ranks, len(values) - cut)]
    expected = sum(total >= seen - 1e-9 for total in sums) / len(sums)
    assert u_test(values[:cut], values[cut:]).p == pytest.approx(expected)


def test_u_test_of_large_samples_is_near_scipys_approximation():
    rng = random.Random(1)
    first, second = [rng.gauss(0, 1) for _ in range(80)], [rng.gauss(0.3, 1) for _ in range(70)]
    theirs = stats.mannwhitneyu(first, second, method="asymptotic")
    assert u_test(first, second).p == pytest.approx(theirs.pvalue, abs=1e-12)


@given(values=st.lists(st.floats(0.1, 100), min_size=1, max_size=12, unique=True), signs=st.randoms())
def test_signed_rank_equals_scipys_exact_test(values, signs):
    differences = [v if signs.random() < 0.5 else -v for v in values]
    theirs = stats.wilcoxon(differences, method="exact")
    assert signed_rank(differences).p == pytest.approx(theirs.pvalue, abs=1e-12)


@given(differences=st.lists(st.integers(-3, 3), min_size=1, max_size=9))
def test_signed_rank_with_ties_and_zeros_equals_the_enumeration_of_all_signs(differences):
    ranks = [rank for rank, d in zip(stats.rankdata([abs(d) for d in differences]), differences, strict=True) if d]
    seen = abs(sum(math.copysign(r, d) for r, d in zip(ranks, [d for d in differences if d], strict=True)))
    sums = [
        abs(sum(r * s for r, s in zip(ranks, signs, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(ranks))
    ]
    assert signed_rank(differences).p == pytest.approx(sum(total >= seen - 1e-9 for total in sums) / len(sums))


@given(first=DISTINCT, second=DISTINCT, alpha=st.sampled_from([0.05, 0.01]))
def test_the_shifts_interval_excludes_0_exactly_when_the_test_rejects(first, second, alpha):
    if set(first) & set(second):
        return
    found = shift(first, second, alpha)
    rejects = u_test(first, second).p <= alpha
    excludes = found.low is not None and (found.low > 0 or found.high < 0)
    assert rejects == excludes
    if found.low is not None:
        assert found.low <= found.estimate <= found.high


@given(values=st.lists(st.floats(0.1, 100), min_size=1, max_size=14, unique=True), signs=st.randoms())
def test_the_paired_interval_excludes_0_exactly_when_the_test_rejects(values, signs):
    differences = [v if signs.random() < 0.8 else -v for v in values]
    found = signed_rank(differences)
    assert (found.p <= 0.05) == (found.low is not None and (found.low > 0 or found.high < 0))


@pytest.mark.parametrize("n", range(2, 9))
def test_the_smallest_p_is_that_of_complete_separation(n):
    assert u_test(range(n), range(100, 100 + n)).p == pytest.approx(smallest_u_p(n, n))
    assert signed_rank(range(1, n + 1)).p == pytest.approx(smallest_signed_p(n))


def test_three_against_three_never_reaches_5_percent_and_four_can():
    assert all(u_test(a, [x for x in range(6) if x not in a]).p > 0.05 for a in itertools.combinations(range(6), 3))
    assert fewest(0.05) == 4 and fewest(0.05 / 5) == 5


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_equals_its_definition(p_values):
    adjusted = holm(p_values)
    for alpha in (0.01, 0.05, 0.3):
        rejected = set()
        for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
            if p_values[index] * (len(p_values) - place) > alpha:
                break
            rejected.add(index)
        assert {i for i, p in enumerate(adjusted) if p <= alpha} == rejected


@pytest.mark.parametrize("count", [6, 9, 20])
def test_the_medians_interval_covers_it_as_often_as_it_says(count):
    rng = random.Random(count)
    hits = 0
    for _ in range(2000):
        found = median_interval([rng.expovariate(1) for _ in range(count)])
        hits += found.low <= math.log(2) <= found.high
    assert hits / 2000 >= 0.935


def test_fewer_than_six_values_give_no_interval_of_the_median():
    assert median_interval([1, 2, 3, 4, 5]) == (3, None, None, 5)
    assert median_interval([5, 1, 2, 3, 4, 6])[1:3] == (1, 6)


@settings(deadline=None, max_examples=5)
@given(effect=st.sampled_from([0.8, 1.2, 1.8]), seed=st.integers(0, 3))
def test_the_repetitions_that_are_needed_give_the_power_that_is_promised(effect, seed):
    rng = random.Random(seed)
    exact = [stats.norm.ppf((i + 0.5) / 50) for i in range(50)]
    count = needed(exact, [x + effect for x in exact], 0.05)
    hits = 0
    for _ in range(600):
        first = [rng.gauss(0, 1) for _ in range(count)]
        hits += u_test(first, [rng.gauss(effect, 1) for _ in range(count)]).p <= 0.05
    assert 0.70 <= hits / 600 <= 0.93


def test_the_detectable_ratio_needs_about_the_repetitions_at_hand():
    noise = [0.01 * stats.norm.ppf((i + 0.5) / 12) for i in range(12)]
    ratio = detectable(noise, noise, 0.05)
    assert 1.005 < ratio < 1.03
    moved = [x + math.log(ratio) for x in noise]
    assert needed(noise, moved, 0.05) in (12, 13)
    assert detectable([0, 1, 2], [0, 1, 2], 0.05) is None


def test_no_noise_and_no_difference_need_nothing():
    assert needed([1.0, 1.0], [1.0, 1.0], 0.05) is None
    assert needed([1.0, 1.0], [2.0, 2.0], 0.05) == 4
    assert needed([1.0], [2.0], 0.05) is None


def test_power_is_that_of_the_theory():
    """The U test's power against a normal shift is that of a t test with pi/3 as many values, within a few percent."""
    rng = random.Random(4)
    for count, effect in ((8, 1.5), (12, 1.0), (20, 1.0)):
        hits = 0
        for _ in range(1000):
            first, second = ([rng.gauss(mean, 1) for _ in range(count)] for mean in (0.0, effect))
            hits += u_test(first, second).p <= 0.05
        equivalent = count * 3 / math.pi
        spread = effect * math.sqrt(equivalent / 2)
        df = 2 * count - 2
        limit = stats.t.ppf(0.975, df)
        power = stats.nct.sf(limit, df, spread) + stats.nct.cdf(-limit, df, spread)
        assert hits / 1000 == pytest.approx(power, abs=0.06)


def test_the_shift_is_the_median_of_all_differences():
    assert shift([1, 2, 10], [2, 5, 7]).estimate == median(b - a for a in (1, 2, 10) for b in (2, 5, 7))
