from __future__ import annotations

import itertools

import pytest

from engine.worker.graphs import padded_sizes


@pytest.mark.parametrize("largest", [1, 5, 8, 64, 256, 1000])
def test_every_batch_has_a_size_that_wastes_little(largest: int) -> None:
    sizes = padded_sizes(largest)
    assert sizes[-1] == largest and all(a < b for a, b in itertools.pairwise(sizes))
    for batch in range(1, largest + 1):
        padded = next(size for size in sizes if size >= batch)
        assert padded == batch if batch <= 8 else padded - batch < max(8, batch / 8)
    assert len(sizes) <= 70
