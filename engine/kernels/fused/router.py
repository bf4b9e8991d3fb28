"""Residual addition, norm and router in one kernel: the start of every mixture-of-experts block.

A program holds the router's rows of a few experts in registers, read before it waits for its predecessors, and takes
one token after the other. Each forms the sum and its norm over the whole width anyway, and stores its share of both.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from engine.kernels.fused.config import LinearTiles
from engine.kernels.fused.launch import await_previous, launch_options, release_next
from engine.kernels.fused.linear import skinny_linear
from engine.kernels.fused.norm import add_rms_norm
from engine.kernels.fused.sizes import ceil_div, power_of_two

# Beyond so many elements a matrix product is faster than rereading each row for every few experts.
FEW_ELEMENTS = 32 * 2048
ROUTER_TILES = LinearTiles(rows=16, cols=16, step=256, warps=4, stages=4)


@triton.jit
def _add_norm_router_kernel(
    x,
    residual,
    norm_weight,
    router_weight,
    normed,
    total,
    logits,
    rows,
    experts,
    x_stride,
    eps,
    WIDTH: tl.constexpr,
    PAD: tl.constexpr,
    COLS: tl.constexpr,
    ROWS: tl.constexpr,
    SHARE: tl.constexpr,
    PDL: tl.constexpr,
):
    release_next(PDL)
    depth = tl.arange(0, PAD)
    inside = depth < WIDTH
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)
    w_at = router_weight + tl.minimum(col, experts - 1)[:, None] * WIDTH + depth[None, :]
    w_tile = tl.load(w_at, mask=inside[None, :], other=0.0)
    scale = tl.load(norm_weight + depth, mask=inside, other=0.0).to(tl.float32)
    await_previous(PDL)
    first = (tl.program_id(1) * ROWS).to(tl.int64)
    x_first = x + first * x_stride + depth
    row_first = first * WIDTH + depth
    share = tl.program_id(0) * SHARE
    own = inside & (depth >= share) & (depth < share + SHARE)
    for row in tl.range(0, tl.minimum(ROWS, rows - tl.program_id(1) * ROWS)):
        row_at = row_first + row * WIDTH
        value = tl.load(x_first + row * x_stride, mask=inside, other=0.0).to(tl.float32)
        value = (value + tl.load(residual + row_at, mask=inside, other=0.0)).to(total.dtype.element_ty)
        tl.store(total + row_at, value, mask=own)
        wide = value.to(tl.float32)
        wide *= tl.rsqrt(tl.sum(wide * wide) / WIDTH + eps)
        scaled = (wide * scale).to(normed.dtype.element_ty)
        tl.store(normed + row_at, scaled, mask=own)
        score = tl.sum(w_tile.to(tl.float32) * scaled.to(tl.float32)[None, :], axis=1)
        tl.store(logits + (first + row) * experts + col, score, mask=col < experts)


def add_norm_router(
    x: Tensor, residual: Tensor, norm_weight: Tensor, router_weight: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """See ``engine.kernels.add_norm_router``."""
    rows, width = x.shape
    if x.numel() > FEW_ELEMENTS:
        normed, total = add_rms_norm(x, residual, norm_weight, eps)
        if rows > 512 or not router_weight.is_contiguous():
            return normed, total, functional.linear(normed.to(router_weight.dtype), router_weight).float()
        return normed, total, skinny_linear(normed, router_weight, ROUTER_TILES, dtype=torch.float32)
    experts = router_weight.shape[0]
    residual = residual.contiguous()
    normed, total = torch.empty_like(residual), torch.empty_like(residual)
    logits = torch.empty(rows, experts, dtype=torch.float32, device=x.device)
    pad = power_of_two(width)
    cols = max(1, min(8, 16384 // pad))
    programs = ceil_div(experts, cols)
    # Enough programs for the card; past that, more tokens to each for one reading of the router.
    height = max(1, min(8, rows * programs // 512))
    if rows:
        _add_norm_router_kernel[(programs, ceil_div(rows, height))](
            x,
            residual,
            norm_weight,
            router_weight,
            normed,
            total,
            logits,
            rows,
            experts,
            x.stride(0),
            eps,
            WIDTH=width,
            PAD=pad,
            COLS=cols,
            ROWS=height,
            SHARE=ceil_div(width, programs),
            num_warps=8,
            **launch_options(x),
        )
    return normed, total, logits
