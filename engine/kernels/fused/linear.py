"""A linear layer for few rows: bound by reading the weight, so many small tiles of it are kept in flight.

The weight is the first operand of the matrix instruction and the rows the second, so a handful of rows wastes little.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from engine.kernels.fused.config import LinearTiles, linear_tiles
from engine.kernels.fused.launch import await_previous, launch_options, release_next
from engine.kernels.fused.sizes import ceil_div


@triton.jit
def _linear_kernel(
    x,
    weight,
    out,
    rows,
    width,
    x_stride,
    out_stride,
    DEPTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
    PDL: tl.constexpr,
):
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)
    held = tl.minimum(col, width - 1).to(tl.int64)
    release_next(PDL)
    await_previous(PDL)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    depth = tl.arange(0, STEP)
    w_at = weight + held[:, None] * DEPTH + depth[None, :]
    x_at = x + row.to(tl.int64)[:, None] * x_stride + depth[None, :]
    total = tl.zeros([COLS, ROWS], dtype=tl.float32)
    for start in tl.range(0, DEPTH, STEP):
        if DEPTH % STEP == 0:
            w_tile = tl.load(w_at + start)
            x_tile = tl.load(x_at + start, mask=inside[:, None], other=0.0)
        else:
            left = (depth < DEPTH - start)[None, :]
            w_tile = tl.load(w_at + start, mask=left, other=0.0)
            x_tile = tl.load(x_at + start, mask=inside[:, None] & left, other=0.0)
        total = tl.dot(w_tile, tl.trans(x_tile.to(w_tile.dtype)), total, input_precision=PRECISION)
    target = out + row.to(tl.int64)[None, :] * out_stride + col[:, None]
    tl.store(target, total.to(out.dtype.element_ty), mask=(col < width)[:, None] & inside[None, :])


def skinny_linear(x: Tensor, weight: Tensor, tiles: LinearTiles, dtype: torch.dtype | None = None) -> Tensor:
    """``x`` [T, K] times ``weight`` [N, K] transposed, [T, N], by the kernel above whatever T is.

    ``weight`` may be wider than ``x``: then the product has float32's accuracy, in three passes of the matrix units.
    """
    rows, depth = x.shape
    width = weight.shape[0]
    tiles = tiles.for_type(weight.element_size())
    precision = "tf32" if weight.dtype != torch.float32 else "ieee" if x.dtype == torch.float32 else "tf32x3"
    out = torch.empty(rows, width, dtype=dtype or x.dtype, device=x.device)
    if rows:
        _linear_kernel[(ceil_div(width, tiles.cols), ceil_div(rows, tiles.rows))](
            x,
            weight,
            out,
            rows,
            width,
            x.stride(0),
            out.stride(0),
            DEPTH=depth,
            ROWS=tiles.rows,
            COLS=tiles.cols,
            STEP=tiles.step,
            PRECISION=precision,
            num_warps=tiles.warps,
            num_stages=tiles.stages,
            **launch_options(x),
        )
    return out


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """See ``engine.kernels.linear``."""
    tiles = linear_tiles(x.shape[0], x.shape[1], weight.shape[0])
    if tiles is None or not weight.is_contiguous():
        return functional.linear(x, weight)
    return skinny_linear(x, weight, tiles)
