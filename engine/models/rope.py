"""The table of rotary angles, plain and YaRN."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.checkpoint.model_config import Yarn


def rope_table(dim: int, theta: float, positions: int, yarn: Yarn | None, device: torch.device) -> Tensor:
    """[positions, dim] float32: dim/2 cosines, then dim/2 sines, of each position's angles."""
    wavelengths = theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    inverse, scale = 1.0 / wavelengths, 1.0
    if yarn is not None:
        inverse, scale = _yarn(wavelengths, dim, theta, yarn), _attention_factor(yarn)
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * inverse
    return torch.cat((angles.cos() * scale, angles.sin() * scale), dim=-1).to(device)


def softmax_scale(head_dim: int, yarn: Yarn | None) -> float:
    """1 / sqrt(head_dim), times DeepSeek's squared mscale under YaRN."""
    scale: float = head_dim**-0.5
    if yarn is not None and yarn.mscale_all_dim:
        scale *= _mscale(yarn.factor, yarn.mscale_all_dim) ** 2
    return scale


def _yarn(wavelengths: Tensor, dim: int, theta: float, yarn: Yarn) -> Tensor:
    """Blend of kept (fast) and interpolated (slow) frequencies, YaRN section 3.2 (arXiv 2309.00071)."""

    def turns_at(rotations: float) -> float:
        return dim * math.log(yarn.original_positions / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(turns_at(yarn.beta_fast)), 0)
    high = min(math.ceil(turns_at(yarn.beta_slow)), dim - 1)
    width = high - low if high != low else 0.001
    kept = 1 - ((torch.arange(dim // 2, dtype=torch.float32) - low) / width).clamp(0, 1)
    return 1.0 / (yarn.factor * wavelengths) * (1 - kept) + 1.0 / wavelengths * kept


def _attention_factor(yarn: Yarn) -> float:
    if yarn.mscale and yarn.mscale_all_dim:
        return _mscale(yarn.factor, yarn.mscale) / _mscale(yarn.factor, yarn.mscale_all_dim)
    return _mscale(yarn.factor, 1.0)


def _mscale(factor: float, mscale: float) -> float:
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0
