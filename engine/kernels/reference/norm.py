"""Root-mean-square norm, alone, after the residual addition, and with what surrounds it in a layer."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from engine.kernels.reference.moe import combine


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension, the statistics in float32 at least."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * scaled.to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The norm of ``x + residual``, and that sum (the new residual stream)."""
    total = x + residual
    return rms_norm(total, weight, eps), total


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
    return add_rms_norm(combine(parts, weights, ids, expert_offset, local_experts), residual, weight, eps)


def add_norm_router(
    x: Tensor, residual: Tensor, norm_weight: Tensor, router_weight: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """See ``engine.kernels.add_norm_router``."""
    normed, total = add_rms_norm(x, residual, norm_weight, eps)
    return normed, total, functional.linear(normed.to(router_weight.dtype), router_weight).float()
