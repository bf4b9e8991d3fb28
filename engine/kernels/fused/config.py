"""Tile shapes by problem size.

Measured on an NVIDIA H200, 2026-11-30, with tests/benchmarks/gpu_tune.py and gpu_prefill.py (docs/kernels-notes.md has
the figures). Nothing is tuned at run time: a captured graph and an eager call run the same kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

CHOICES = 4096
"""How many choices are remembered: between two launches of an eager step every microsecond of the host counts."""


@dataclass(frozen=True)
class LinearTiles:
    """One tile of a skinny linear layer: ``cols`` weight rows by ``step`` of the depth, for ``rows`` tokens."""

    rows: int
    cols: int
    step: int
    warps: int
    stages: int

    def for_type(self, element_size: int) -> LinearTiles:
        """The same bytes a stage for another type than the two-byte ones that were measured."""
        return self if element_size == 2 else replace(self, step=max(16, self.step * 2 // element_size))


@dataclass(frozen=True)
class ExpertTiles:
    """One tile of the experts' grouped product: ``rows`` tokens, ``cols`` weight rows, ``step`` of the depth.

    ``swap`` makes the weight the first operand of the matrix instruction: for tiles of few tokens.
    """

    rows: int
    cols: int
    step: int
    warps: int
    stages: int
    swap: bool

    def for_type(self, element_size: int) -> ExpertTiles:
        """The same bytes a stage for another type than the two-byte ones that were measured."""
        return self if element_size == 2 else replace(self, step=max(16, self.step * 2 // element_size))


@dataclass(frozen=True)
class PrefillTiles:
    """``rows`` of (token, head of a group) against ``span`` keys at a time."""

    rows: int
    span: int
    warps: int
    stages: int


@dataclass(frozen=True)
class DecodeTiles:
    """A context in ``splits`` parts (a power of two), read ``span`` tokens at a time."""

    splits: int
    span: int
    warps: int
    stages: int


@lru_cache(CHOICES)
def decode_tiles(programs: int, wide: bool = False) -> DecodeTiles:
    """The tile for ``programs`` pairs of (sequence, key head): parts enough to fill the card, at most 16.

    For ``wide`` float32 the tile must be small enough for shared memory.
    """
    wanted = max(1, min(16, 132 // max(1, programs)))
    splits = 1 << (wanted.bit_length() - 1)
    if 64 < programs <= 132 and not wide:
        # One program a multiprocessor: long rounds in flight hide the latency that neighbours cannot.
        return DecodeTiles(splits, span=256, warps=8, stages=2)
    if 132 < programs <= 264 and not wide:
        return DecodeTiles(splits, span=64, warps=8, stages=3)
    return DecodeTiles(splits, span=64, warps=4, stages=2)


@lru_cache(CHOICES)
def prefill_tiles(wide: bool) -> PrefillTiles:
    """The tile for two-byte types, or for ``wide`` float32, whose products run without the matrix units."""
    return PrefillTiles(32, 32, 4, 3) if wide else PrefillTiles(256, 64, 8, 3)


@lru_cache(CHOICES)
def linear_tiles(rows: int, depth: int, width: int) -> LinearTiles | None:
    """The tile for ``rows`` tokens, or None where the library's product is as fast."""
    if rows > 32 or depth % 128 != 0:
        return None
    height = 8 if rows <= 8 else 16 if rows <= 16 else 32
    if width < 4096:
        return LinearTiles(rows=height, cols=16, step=512 if height == 32 else 256, warps=4, stages=4)
    if width <= 16384 and height == 8:
        return LinearTiles(rows=8, cols=32, step=128, warps=2, stages=6)
    return LinearTiles(rows=max(16, height), cols=64, step=128, warps=4, stages=4)


@lru_cache(CHOICES)
def expert_tiles(pairs: int, experts: int) -> tuple[ExpertTiles, ExpertTiles]:
    """Tiles of the gate-and-up and of the down product for ``pairs`` of (token, expert) over ``experts`` experts.

    Both products share the tile's rows. Measured at 2048 x 768 and 7168 x 2048.
    """
    load = pairs / experts
    if load <= 16:
        rows = 16 if load <= 12 else 32
        return (
            ExpertTiles(rows=rows, cols=32, step=128, warps=2, stages=5, swap=True),
            ExpertTiles(rows=rows, cols=64, step=128, warps=4, stages=4, swap=True),
        )
    if load <= 96:
        return (
            ExpertTiles(rows=64, cols=64, step=64, warps=8, stages=4, swap=False),
            ExpertTiles(rows=64, cols=128, step=64, warps=8, stages=4, swap=False),
        )
    return (
        ExpertTiles(rows=128, cols=128, step=64, warps=8, stages=4, swap=False),
        ExpertTiles(rows=128, cols=256, step=64, warps=8, stages=4, swap=False),
    )
