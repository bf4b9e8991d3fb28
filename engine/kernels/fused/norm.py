"""Root-mean-square norm, with the residual addition and the experts' weighted sum that may precede it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.fused.launch import await_previous, launch_options
from engine.kernels.fused.sizes import ceil_div, power_of_two


@triton.jit
def _norm_kernel(
    x, residual, weight, normed, total, x_stride, width, eps, ADD: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < width
    scale = tl.load(weight + cols, mask=inside, other=0.0).to(tl.float32)
    await_previous(PDL)
    value = tl.load(x + row * x_stride + cols, mask=inside, other=0.0)
    if ADD:
        value = (value.to(tl.float32) + tl.load(residual + row * width + cols, mask=inside, other=0.0)).to(value.dtype)
        tl.store(total + row * width + cols, value, mask=inside)
    wide = value.to(tl.float32)
    wide *= tl.rsqrt(tl.sum(wide * wide) / width + eps)
    tl.store(normed + row * width + cols, (wide * scale).to(normed.dtype.element_ty), mask=inside)


@triton.jit
def _combine_kernel(
    parts,
    weights,
    ids,
    residual,
    weight,
    normed,
    total,
    width,
    eps,
    expert_offset,
    local_experts,
    K: tl.constexpr,
    CHOICES: tl.constexpr,
    NORM: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < width
    await_previous(PDL)
    choice = tl.arange(0, CHOICES)
    pair = row * K + choice
    expert = tl.load(ids + pair, mask=choice < K, other=-1) - expert_offset
    here = (expert >= 0) & (expert < local_experts) & (choice < K)
    share = tl.load(weights + pair, mask=here, other=0.0)
    part = tl.load(parts + pair[:, None] * width + cols[None, :], mask=here[:, None] & inside[None, :], other=0.0)
    summed = tl.sum(part.to(tl.float32) * share[:, None], axis=0)
    if NORM:
        value = summed.to(total.dtype.element_ty).to(tl.float32)
        value = (value + tl.load(residual + row * width + cols, mask=inside, other=0.0)).to(total.dtype.element_ty)
        tl.store(total + row * width + cols, value, mask=inside)
        wide = value.to(tl.float32)
        wide *= tl.rsqrt(tl.sum(wide * wide) / width + eps)
        scale = tl.load(weight + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(normed + row * width + cols, (wide * scale).to(normed.dtype.element_ty), mask=inside)
    else:
        tl.store(total + row * width + cols, summed.to(total.dtype.element_ty), mask=inside)


def _warps(block: int) -> int:
    return max(1, min(16, block // 256))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See ``engine.kernels.rms_norm``."""
    rows = x.reshape(-1, x.shape[-1])
    normed = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    block = power_of_two(x.shape[-1])
    if rows.shape[0]:
        _norm_kernel[(rows.shape[0],)](
            rows,
            rows,
            weight,
            normed,
            normed,
            rows.stride(0),
            rows.shape[1],
            eps,
            ADD=False,
            BLOCK=block,
            num_warps=_warps(block),
            **launch_options(x),
        )
    return normed.view(x.shape)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """See ``engine.kernels.add_rms_norm``."""
    residual = residual.contiguous()
    normed, total = torch.empty_like(residual), torch.empty_like(residual)
    block = power_of_two(x.shape[-1])
    if x.shape[0]:
        _norm_kernel[(x.shape[0],)](
            x,
            residual,
            weight,
            normed,
            total,
            x.stride(0),
            x.shape[1],
            eps,
            ADD=True,
            BLOCK=block,
            num_warps=_warps(block),
            **launch_options(x),
        )
    return normed, total


def combine_add_rms_norm(
    parts: Tensor,
    weights: Tensor,
    ids: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    expert_offset: int,
    local_experts: int,
) -> tuple[Tensor, Tensor]:
    """See ``engine.kernels.combine_add_rms_norm``."""
    tokens, k, width = parts.shape
    residual = residual.contiguous()
    normed, total = torch.empty_like(residual), torch.empty_like(residual)
    block = power_of_two(width)
    if tokens:
        _combine_kernel[(tokens, 1)](
            parts,
            weights,
            ids,
            residual,
            weight,
            normed,
            total,
            width,
            eps,
            expert_offset,
            local_experts,
            K=k,
            CHOICES=power_of_two(k),
            NORM=True,
            BLOCK=block,
            num_warps=_warps(block),
            **launch_options(parts),
        )
    return normed, total


def combine(parts: Tensor, weights: Tensor, ids: Tensor, expert_offset: int, local_experts: int) -> Tensor:
    """The weighted sum [T, H] of the experts' outputs ``parts`` [T, k, H], those of other ranks' experts left out."""
    tokens, k, width = parts.shape
    total = torch.empty(tokens, width, dtype=parts.dtype, device=parts.device)
    block = min(1024, power_of_two(width))
    if tokens:
        _combine_kernel[(tokens, ceil_div(width, block))](
            parts,
            weights,
            ids,
            parts,
            parts,
            total,
            total,
            width,
            0.0,
            expert_offset,
            local_experts,
            K=k,
            CHOICES=power_of_two(k),
            NORM=False,
            BLOCK=block,
            num_warps=_warps(block),
            **launch_options(parts),
        )
    return total
