"""Root-mean-square norm, alone and after the residual addition."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension, the statistics in float32 at least."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * scaled.to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The norm of ``x + residual``, and that sum (the new residual stream)."""
    total = x + residual
    return rms_norm(total, weight, eps), total
