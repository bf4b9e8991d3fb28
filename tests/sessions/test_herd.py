from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.herd import herd_index, waves


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([8], 1.0), ([4, 4], 0.429), ([2, 2, 2, 2], 0.143), ([5, 1, 1, 1], 0.357), ([1] * 8, 0.0)],
)
def test_herd_index_of_eight_requests_on_eight_stages(sizes: list[int], expected: float) -> None:
    assert herd_index(sizes, 8) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize(("sizes", "stages"), [([], 4), ([1], 4), ([0, 0], 4), ([5], 1)])
def test_herd_index_is_none_where_it_says_nothing(sizes: list[int], stages: int) -> None:
    assert herd_index(sizes, stages) is None


@given(st.lists(st.integers(0, 64), min_size=1, max_size=16), st.integers(2, 16))
def test_herd_index_and_waves_stay_in_range(sizes: list[int], stages: int) -> None:
    index, count = herd_index(sizes, stages), waves(sizes)
    assert index is None or 0.0 <= index <= 1.0
    assert count is None or 1.0 - 1e-9 <= count <= len(sizes) + 1e-9


@given(st.integers(2, 16), st.integers(1, 32))
def test_an_even_split_has_no_herd_and_one_wave_a_slot(stages: int, share: int) -> None:
    sizes = [share] * stages
    assert herd_index(sizes, stages) == pytest.approx(0.0)
    assert waves(sizes) == pytest.approx(stages)
