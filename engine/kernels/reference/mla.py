"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434) with the absorbed projections.

The cache holds one row a token: the normed latent, then the rotated shared key. Every head attends to that row, with
its query already carried into the latent space; the result stays there until the value projection.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.reference.attention import decode_attention, prefill_attention
from engine.kernels.reference.norm import rms_norm
from engine.kernels.reference.paging import write_slots
from engine.kernels.reference.rope import apply_rope


def mla_norm_rope_cache(
    q_rope: Tensor,
    compressed: Tensor,
    kv_weight: Tensor,
    cos_sin: Tensor,
    positions: Tensor,
    latent_cache: Tensor,
    slot_mapping: Tensor,
    eps: float,
    interleaved: bool = True,
) -> Tensor:
    """See ``engine.kernels.mla_norm_rope_cache``."""
    rank = kv_weight.shape[0]
    latent = rms_norm(compressed[:, :rank], kv_weight, eps)
    key = apply_rope(compressed[:, None, rank:], cos_sin, positions, interleaved)[:, 0]
    write_slots(latent_cache, torch.cat((latent, key), dim=-1), slot_mapping)
    return apply_rope(q_rope, cos_sin, positions, interleaved)


def mla_decode_attention(
    q_latent: Tensor, q_rope: Tensor, latent_cache: Tensor, block_table: Tensor, context_lens: Tensor, scale: float
) -> Tensor:
    """See ``engine.kernels.mla_decode_attention``."""
    keys = latent_cache.unsqueeze(2)
    values = keys[..., : q_latent.shape[-1]]
    return decode_attention(torch.cat((q_latent, q_rope), dim=-1), keys, values, block_table, context_lens, scale)


def mla_prefill_attention(
    q_latent: Tensor,
    q_rope: Tensor,
    latent_cache: Tensor,
    block_table: Tensor,
    context_lens: Tensor,
    query_start: Tensor,
    scale: float,
) -> Tensor:
    """See ``engine.kernels.mla_prefill_attention``."""
    keys = latent_cache.unsqueeze(2)
    values = keys[..., : q_latent.shape[-1]]
    q = torch.cat((q_latent, q_rope), dim=-1)
    return prefill_attention(q, keys, values, block_table, context_lens, query_start, scale)
