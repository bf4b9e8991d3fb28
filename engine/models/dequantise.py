"""Turns quantised checkpoint tensors into plain weights, in torch, on whichever device they are."""

from __future__ import annotations

import torch
from torch import Tensor

INT4_PER_WORD = 8


def dequantise_fp8(weight: Tensor, scale_inv: Tensor, rows: int, columns: int) -> Tensor:
    """`weight` [N, K] e4m3 times its block's factor of `scale_inv` [N / rows, K / columns] (rounded up); float32."""
    factors = scale_inv.float().repeat_interleave(rows, 0)[: weight.shape[0]]
    return weight.float() * factors.repeat_interleave(columns, 1)[:, : weight.shape[1]]


def dequantise_int4(packed: Tensor, scale: Tensor, group: int) -> Tensor:
    """`packed` [N, K / 8] int32 of unsigned nibbles, lowest first, each 8 above its value; `scale` [N, K / group].

    The compressed-tensors pack-quantized format (github.com/vllm-project/compressed-tensors). Gives float32 [N, K].
    """
    shifts = torch.arange(0, 4 * INT4_PER_WORD, 4, device=packed.device, dtype=torch.int32)
    values = ((packed[..., None] >> shifts) & 0xF) - 8
    weight = values.flatten(-2).float()
    return weight * scale.float().repeat_interleave(group, -1)
