"""Finding a tile's sequence, and the merge of a context that several programs read in parts."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.fused.launch import await_previous, launch_options
from engine.kernels.fused.sizes import power_of_two

LOG2E = 1.4426950408889634
"""Softmaxes are in base 2: their kernels are given the scale times this."""


@triton.jit
def find_sequence(query_start, tile, sequences, rows_a_token: tl.constexpr, TILE: tl.constexpr):
    """The sequence of row tile ``tile``; sequence i's tiles begin at ``query_start[i] * rows_a_token // TILE + i``.

    So the grid is known without reading lengths; a tile past its sequence's rows has nothing to do.
    """
    low = 0
    high = sequences
    while low < high:
        middle = (low + high) // 2
        if tl.load(query_start + middle) * rows_a_token // TILE + middle <= tile:
            low = middle + 1
        else:
            high = middle
    return low - 1


@triton.jit
def _merge_kernel(
    partial, statistics, out, SPLITS: tl.constexpr, D: tl.constexpr, PAD: tl.constexpr, PDL: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    await_previous(PDL)
    split = tl.arange(0, SPLITS)
    cols = tl.arange(0, PAD)
    top = tl.load(statistics + (row * SPLITS + split) * 2)
    total = tl.load(statistics + (row * SPLITS + split) * 2 + 1)
    highest = tl.max(top)
    factor = tl.where(total > 0.0, tl.exp2(top - highest), 0.0)
    inside = (total > 0.0)[:, None] & (cols < D)[None, :]
    parts = tl.load(partial + (row * SPLITS + split)[:, None] * D + cols[None, :], mask=inside, other=0.0)
    whole = tl.sum(total * factor)
    value = tl.sum(parts * factor[:, None], axis=0) / tl.where(whole > 0.0, whole, 1.0)
    tl.store(out + row * D + cols, value.to(out.dtype.element_ty), mask=cols < D)


def merge(partial: Tensor, statistics: Tensor, out: Tensor) -> None:
    """Merge attention read in parts.

    partial [rows, splits, D] float32 unnormalised sums, statistics [rows, splits, 2] float32: the base-2 maximum and
    the sum of weights of each part (sum 0: nothing there). Writes ``out`` [rows, D].
    """
    rows, splits, dim = partial.shape
    _merge_kernel[(rows,)](
        partial,
        statistics,
        out,
        SPLITS=splits,
        D=dim,
        PAD=power_of_two(dim),
        num_warps=4 if dim > 128 else 2,
        **launch_options(partial),
    )


def split_buffers(rows: int, splits: int, dim: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Room for the parts that ``merge`` takes."""
    partial = torch.empty(rows, splits, dim, dtype=torch.float32, device=like.device)
    return partial, torch.empty(rows, splits, 2, dtype=torch.float32, device=like.device)


def split_count(programs: int, target: int = 256) -> int:
    """Parts of a context so that ``programs`` times that fill the card once or twice, a power of two of at most 32."""
    wanted = target // max(1, programs)
    return max(1, min(32, 1 << (wanted.bit_length() - 1))) if wanted else 1
