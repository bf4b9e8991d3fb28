"""Quantiles are those of numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.traces.quantile import median, quantile

VALUES = st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=40)


@given(VALUES, st.floats(0.0, 1.0))
def test_as_numpy_has_it(values: list[int], share: float) -> None:
    array = np.array(values, dtype=np.int64)
    assert quantile(array, share) == pytest.approx(float(np.quantile(array, share)), rel=1e-9, abs=1.0)
    assert median(array) == pytest.approx(float(np.median(array)), rel=1e-9, abs=1.0)
