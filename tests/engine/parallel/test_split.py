from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.parallel.split import split_layers, stage_bounds
from engine.presets import PRESETS


def largest(costs: list[float], bounds: list[int], last_cost: float) -> float:
    groups = [sum(costs[a:b]) for a, b in itertools.pairwise(bounds)]
    groups[-1] += last_cost
    return max(groups)


@given(
    costs=st.lists(st.floats(0.1, 10), min_size=1, max_size=8),
    stages=st.integers(1, 5),
    last_cost=st.floats(0, 20),
)
def test_no_other_split_is_better(costs: list[float], stages: int, last_cost: float) -> None:
    stages = min(stages, len(costs))
    bounds = split_layers(costs, stages, last_cost)
    assert bounds[0] == 0 and bounds[-1] == len(costs) and all(a < b for a, b in itertools.pairwise(bounds))
    every = ([0, *inner, len(costs)] for inner in itertools.combinations(range(1, len(costs)), stages - 1))
    assert largest(costs, bounds, last_cost) <= min(largest(costs, other, last_cost) for other in every) + 1e-9


def test_more_stages_than_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="2 layers cannot be split over 3 stages"):
        split_layers([1, 1], 3)


def test_the_head_takes_layers_off_the_last_stage() -> None:
    bounds = stage_bounds(PRESETS["kimi-k2"], 8)
    sizes = [b - a for a, b in itertools.pairwise(bounds)]
    assert sum(sizes) == 61
    assert sizes[-1] < max(sizes)
