from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.emulated.routing import busiest_rank_experts, distinct_experts, inclusion, rank_experts


def test_distinct_experts_of_kimi() -> None:
    assert distinct_experts(384, 8, 1) == pytest.approx(8)
    assert distinct_experts(384, 8, 8) == pytest.approx(59.5, abs=0.1)


@given(
    experts=st.integers(1, 512),
    share=st.floats(0.01, 1.0),
    tokens=st.integers(1, 4096),
    skew=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
)
@settings(max_examples=60, deadline=None)
def test_distinct_experts_lie_between_one_token_and_all(experts: int, share: float, tokens: int, skew: float) -> None:
    top_k = max(1, int(experts * share))
    distinct = distinct_experts(experts, top_k, tokens, skew)
    assert top_k - 1e-6 <= distinct <= experts + 1e-6
    assert distinct <= tokens * top_k + 1e-6
    assert distinct <= distinct_experts(experts, top_k, tokens, 0.0) + 1e-6
    assert sum(inclusion(experts, top_k, skew)) == pytest.approx(top_k)
    assert max(inclusion(experts, top_k, skew)) <= 1.0 + 1e-9


@pytest.mark.parametrize(("ranks", "tokens"), [(8, 1), (8, 4), (8, 16), (4, 8), (2, 4)])
def test_the_busiest_rank_agrees_with_drawn_routing(ranks: int, tokens: int) -> None:
    rng = random.Random(7)
    most = []
    for _ in range(300):
        touched = {e for _ in range(tokens) for e in rng.sample(range(384), 8)}
        loads = [0] * ranks
        for expert in touched:
            loads[expert * ranks // 384] += 1
        most.append(max(loads))
    assert busiest_rank_experts(384, 8, tokens, 0.0, ranks) == pytest.approx(sum(most) / len(most), rel=0.12)


@given(ranks=st.integers(1, 96), tokens=st.integers(1, 512), skew=st.sampled_from([0.0, 0.8]))
@settings(max_examples=40, deadline=None)
def test_the_busiest_rank_has_at_least_the_mean_and_at_most_its_share(ranks: int, tokens: int, skew: float) -> None:
    busiest = busiest_rank_experts(96, 4, tokens, skew, ranks)
    loads = rank_experts(96, 4, tokens, skew, ranks)
    assert sum(loads) == pytest.approx(distinct_experts(96, 4, tokens, skew))
    assert sum(loads) / ranks - 1e-6 <= busiest <= -(-96 // ranks) + 1e-6


def test_skew_makes_one_rank_wait_for() -> None:
    even, skewed = rank_experts(384, 8, 8, 0.0, 8), rank_experts(384, 8, 8, 1.0, 8)
    assert max(even) == pytest.approx(min(even))
    assert max(skewed) > 3 * min(skewed)
