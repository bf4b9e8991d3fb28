"""Tile shapes of the matrix kernels by problem size, and where each was measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LinearTiles:
    """One tile of a skinny linear layer: ``cols`` weight rows by ``step`` of the depth, for ``rows`` tokens."""

    rows: int
    cols: int
    step: int
    warps: int
    stages: int


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


@dataclass(frozen=True)
class DecodeTiles:
    """A context in ``splits`` parts (a power of two), read ``span`` tokens at a time."""

    splits: int
    span: int
    warps: int
    stages: int


def decode_tiles(programs: int) -> DecodeTiles:
    """The tile for ``programs`` pairs of (sequence, key head): parts enough to fill the card, at most 32."""
    wanted = max(1, min(32, 132 // max(1, programs)))
    return DecodeTiles(splits=1 << (wanted.bit_length() - 1), span=64, warps=4, stages=3)


def linear_tiles(rows: int, depth: int, width: int) -> LinearTiles | None:
    """The tile for ``rows`` tokens, or None where the library's product is as fast."""
    if rows > 32 or width > 16384 or depth % 128 != 0:
        return None
    if rows <= 8:
        return (
            LinearTiles(rows=8, cols=32, step=128, warps=2, stages=6)
            if depth <= 2048
            else LinearTiles(8, 16, 256, 4, 4)
        )
    return LinearTiles(rows=32, cols=64, step=128, warps=4, stages=4)


def expert_tiles(pairs: int, experts: int, width: int, depth: int) -> tuple[ExpertTiles, ExpertTiles]:
    """Tiles of the gate-and-up and of the down product for ``pairs`` of (token, expert) over ``experts`` experts.

    ``width`` is the model's, ``depth`` the experts' inner size. Both products share the tile's rows.
    """
    load = pairs / experts
    if load <= 16:
        rows = 16 if load <= 12 else 32
        return (
            ExpertTiles(rows=rows, cols=32, step=128, warps=2, stages=5, swap=True),
            ExpertTiles(rows=rows, cols=64, step=128, warps=4, stages=4, swap=True),
        )
    rows = 64 if load <= 96 else 128
    return (
        ExpertTiles(rows=rows, cols=64 if rows == 64 else 128, step=64, warps=8, stages=3, swap=False),
        ExpertTiles(rows=rows, cols=128 if rows == 64 else 256, step=64, warps=8, stages=3, swap=False),
    )
