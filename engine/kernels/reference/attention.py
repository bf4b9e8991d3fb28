"""Attention over the paged key and value cache, grouped-query: decode all rows at once, prefill by sequence."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.reference.paging import read_context, read_contexts


def attend(q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Causal attention of the last N tokens of one context.

    q [N, Hq, D], keys [L, Hkv, D], values [L, Hkv, Dv] with N <= L; query n is token L - N + n. Gives [N, Hq, Dv].
    """
    count, heads, _ = q.shape
    length, kv_heads, _ = keys.shape
    wide = torch.promote_types(q.dtype, torch.float32)
    grouped = q.reshape(count, kv_heads, heads // kv_heads, -1).to(wide)
    scores = torch.einsum("nhgd,lhd->nhgl", grouped, keys.to(wide)) * scale
    token = torch.arange(length, device=q.device)
    hidden = token > token[length - count :, None]
    weights = scores.masked_fill(hidden[:, None, None, :], float("-inf")).softmax(-1)
    return torch.einsum("nhgl,lhd->nhgd", weights, values.to(wide)).flatten(1, 2).to(q.dtype)


def decode_attention(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, context_lens: Tensor, scale: float
) -> Tensor:
    """See ``engine.kernels.decode_attention``."""
    longest = int(context_lens.max()) if len(context_lens) else 0
    if longest == 0:
        return torch.zeros(*q.shape[:-1], v_cache.shape[-1], dtype=q.dtype, device=q.device)
    count, heads, _ = q.shape
    kv_heads = k_cache.shape[2]
    wide = torch.promote_types(q.dtype, torch.float32)
    keys, values = read_contexts(k_cache, block_table, longest), read_contexts(v_cache, block_table, longest)
    hidden = torch.arange(longest, device=q.device) >= context_lens[:, None]
    values = values.masked_fill(hidden[:, :, None, None], 0.0)  # a weight of zero does not silence a NaN
    grouped = q.reshape(count, kv_heads, heads // kv_heads, -1).to(wide)
    scores = torch.einsum("bhgd,blhd->bhgl", grouped, keys.to(wide)) * scale
    weights = scores.masked_fill(hidden[:, None, None, :], float("-inf")).softmax(-1)
    weights = weights.masked_fill((context_lens == 0)[:, None, None, None], 0.0)
    return torch.einsum("bhgl,blhd->bhgd", weights, values.to(wide)).flatten(1, 2).to(q.dtype)


def prefill_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    context_lens: Tensor,
    query_start: Tensor,
    scale: float,
) -> Tensor:
    """See ``engine.kernels.prefill_attention``."""
    out = torch.zeros(*q.shape[:-1], v_cache.shape[-1], dtype=q.dtype, device=q.device)
    starts = query_start.tolist()
    for row, length in enumerate(context_lens.tolist()):
        span = slice(starts[row], starts[row + 1])
        if span.stop > span.start:
            keys = read_context(k_cache, block_table[row], length)
            out[span] = attend(q[span], keys, read_context(v_cache, block_table[row], length), scale)
    return out
