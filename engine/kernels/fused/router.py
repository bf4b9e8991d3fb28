"""Residual addition, norm and router in one kernel: the start of every mixture-of-experts block.

Programs are tiles of (tokens, experts). Each forms the sum and its norm over the whole width anyway, and stores its
share of the columns of both.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.fused.launch import await_previous, launch_options, prefetch, release_next


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
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    STEP: tl.constexpr,
    LINE: tl.constexpr,
    LINES: tl.constexpr,
    SHARE: tl.constexpr,
    PRECISION: tl.constexpr,
    PDL: tl.constexpr,
):
    release_next(PDL)
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)
    held = tl.minimum(col, experts - 1)
    line = tl.minimum(tl.arange(0, LINES) * LINE, WIDTH - 1)
    prefetch(router_weight + held[:, None] * WIDTH + line[None, :], PDL)
    await_previous(PDL)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inside = (row < rows)[:, None]
    x_at = row.to(tl.int64)[:, None] * x_stride
    row_at = row.to(tl.int64)[:, None] * WIDTH
    squares = tl.zeros([ROWS], dtype=tl.float32)
    score = tl.zeros([COLS, ROWS], dtype=tl.float32)
    for start in tl.range(0, WIDTH, STEP):
        depth = (start + tl.arange(0, STEP))[None, :]
        mask = inside & (depth < WIDTH)
        value = tl.load(x + x_at + depth, mask=mask, other=0.0).to(tl.float32)
        value = (value + tl.load(residual + row_at + depth, mask=mask, other=0.0)).to(total.dtype.element_ty)
        wide = value.to(tl.float32)
        squares += tl.sum(wide * wide, axis=1)
        scale = tl.load(norm_weight + depth, mask=depth < WIDTH, other=0.0).to(tl.float32)
        w_tile = tl.load(router_weight + held[:, None] * WIDTH + depth, mask=depth < WIDTH, other=0.0)
        scaled = (wide * scale).to(w_tile.dtype)
        score = tl.dot(w_tile, tl.trans(scaled), score, input_precision=PRECISION)
    factor = tl.rsqrt(squares / WIDTH + eps)
    target = logits + row[None, :] * experts + col[:, None]
    tl.store(target, score * factor[None, :], mask=(col < experts)[:, None] & (row < rows)[None, :])
    begin = tl.program_id(0) * SHARE
    for start in tl.range(begin, tl.minimum(begin + SHARE, WIDTH), STEP):
        depth = (start + tl.arange(0, STEP))[None, :]
        mask = inside & (depth < WIDTH) & (depth < begin + SHARE)
        value = tl.load(x + x_at + depth, mask=mask, other=0.0).to(tl.float32)
        value = (value + tl.load(residual + row_at + depth, mask=mask, other=0.0)).to(total.dtype.element_ty)
        tl.store(total + row_at + depth, value, mask=mask)
        scale = tl.load(norm_weight + depth, mask=depth < WIDTH, other=0.0).to(tl.float32)
        value = value.to(tl.float32) * factor[:, None] * scale
        tl.store(normed + row_at + depth, value.to(normed.dtype.element_ty), mask=mask)


def add_norm_router(
    x: Tensor, residual: Tensor, norm_weight: Tensor, router_weight: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """See ``engine.kernels.add_norm_router``."""
    rows, width = x.shape
    experts = len(router_weight)
    residual = residual.contiguous()
    normed, total = torch.empty_like(residual), torch.empty_like(residual)
    logits = torch.empty(rows, experts, dtype=torch.float32, device=x.device)
    cols, step = 16, min(256, triton.next_power_of_2(width))
    line = 128 // router_weight.element_size()
    programs = triton.cdiv(experts, cols)
    if rows:
        _add_norm_router_kernel[(programs, triton.cdiv(rows, 16))](
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
            ROWS=16,
            COLS=cols,
            STEP=step,
            LINE=line,
            LINES=triton.next_power_of_2(triton.cdiv(width, line)),
            SHARE=triton.cdiv(width, programs),
            PRECISION="ieee" if x.dtype == torch.float32 else "tf32",
            num_warps=4,
            num_stages=3,
            **launch_options(x),
        )
    return normed, total, logits
