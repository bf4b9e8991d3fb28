"""Rotary position embedding, with the per-head norm of Qwen3 and the write to the paged cache."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.reference.attention import decode_attention
from engine.kernels.reference.norm import rms_norm
from engine.kernels.reference.paging import write_slots


def apply_rope(x: Tensor, cos_sin: Tensor, positions: Tensor, interleaved: bool = False) -> Tensor:
    """Rotate the last dimension D of ``x`` [T, heads, D] by the row of its position in ``cos_sin`` [max_position, D].

    A row of ``cos_sin`` holds D/2 cosines, then D/2 sines. Pairs are (i, i + D/2); with ``interleaved`` they are
    (2i, 2i + 1) on the way in, as DeepSeek's checkpoints store them, and (i, i + D/2) on the way out.
    """
    cos, sin = cos_sin[positions.long()].unsqueeze(1).chunk(2, dim=-1)
    wide = x.to(torch.promote_types(x.dtype, cos_sin.dtype))
    first, second = (wide[..., 0::2], wide[..., 1::2]) if interleaved else wide.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def qk_norm_rope_cache(
    qkv: Tensor,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    cos_sin: Tensor,
    positions: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    eps: float,
) -> Tensor:
    """See ``engine.kernels.qk_norm_rope_cache``."""
    kv_heads, dim = k_cache.shape[-2:]
    q_heads = qkv.shape[1] // dim - 2 * kv_heads
    q, k, v = torch.split(qkv.reshape(len(qkv), -1, dim), [q_heads, kv_heads, kv_heads], dim=1)
    if q_weight is not None and k_weight is not None:
        q, k = rms_norm(q, q_weight, eps), rms_norm(k, k_weight, eps)
    write_slots(k_cache, apply_rope(k, cos_sin, positions), slot_mapping)
    write_slots(v_cache, v, slot_mapping)
    return apply_rope(q, cos_sin, positions)


def rope_decode_attention(
    qkv: Tensor,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    cos_sin: Tensor,
    positions: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    block_table: Tensor,
    context_lens: Tensor,
    scale: float,
    eps: float,
) -> Tensor:
    """See ``engine.kernels.rope_decode_attention``."""
    q = qk_norm_rope_cache(qkv, q_weight, k_weight, cos_sin, positions, k_cache, v_cache, slot_mapping, eps)
    return decode_attention(q, k_cache, v_cache, block_table, context_lens, scale)
