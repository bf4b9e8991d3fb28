"""Per-head norm, rotary embedding and the cache write in one pass over the fused projection."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.fused.launch import await_previous, launch_options, release_next
from engine.kernels.fused.sizes import ceil_div, power_of_two

# Heads of one token that a program takes.
HEADS = 8


@triton.jit
def _qk_norm_rope_cache_kernel(
    qkv,
    q_weight,
    k_weight,
    cos_sin,
    positions,
    k_cache,
    v_cache,
    slot_mapping,
    out,
    qkv_stride,
    q_heads,
    kv_heads,
    eps,
    D: tl.constexpr,
    HALF: tl.constexpr,
    HEADS: tl.constexpr,
    NORM: tl.constexpr,
    PDL: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = (tl.program_id(1) * HEADS + tl.arange(0, HEADS))[:, None]
    release_next(PDL)
    await_previous(PDL)
    half = tl.arange(0, HALF)[None, :]
    inside = (half < D // 2) & (head < q_heads + 2 * kv_heads)
    is_q, is_v = head < q_heads, head >= q_heads + kv_heads
    source = qkv + token * qkv_stride + head * D + half
    raw_first = tl.load(source, mask=inside, other=0.0)
    raw_second = tl.load(source + D // 2, mask=inside, other=0.0)
    first, second = raw_first.to(tl.float32), raw_second.to(tl.float32)
    if NORM:
        factor = tl.rsqrt(tl.sum(first * first + second * second, axis=1, keep_dims=True) / D + eps)
        low = tl.where(
            is_q,
            tl.load(q_weight + half, mask=half < D // 2, other=0.0),
            tl.load(k_weight + half, mask=half < D // 2, other=0.0),
        )
        high = tl.where(
            is_q,
            tl.load(q_weight + D // 2 + half, mask=half < D // 2, other=0.0),
            tl.load(k_weight + D // 2 + half, mask=half < D // 2, other=0.0),
        )
        # Rounded to the model's type between norm and rotation, as the unfused layers do.
        first = (first * factor * low).to(raw_first.dtype).to(tl.float32)
        second = (second * factor * high).to(raw_first.dtype).to(tl.float32)
    row = cos_sin + tl.load(positions + token).to(tl.int64) * D + half
    cos = tl.load(row, mask=half < D // 2, other=0.0)
    sin = tl.load(row + D // 2, mask=half < D // 2, other=0.0)
    turned_first = tl.where(is_v, raw_first, (first * cos - second * sin).to(raw_first.dtype))
    turned_second = tl.where(is_v, raw_second, (second * cos + first * sin).to(raw_first.dtype))
    target = out + (token * q_heads + head) * D + half
    tl.store(target, turned_first, mask=inside & is_q)
    tl.store(target + D // 2, turned_second, mask=inside & is_q)
    slot = tl.load(slot_mapping + token).to(tl.int64)
    if slot >= 0:
        target = k_cache + (slot * kv_heads + head - q_heads) * D + half
        is_k = inside & (head >= q_heads) & (head < q_heads + kv_heads)
        tl.store(target, turned_first, mask=is_k)
        tl.store(target + D // 2, turned_second, mask=is_k)
        target = v_cache + (slot * kv_heads + head - q_heads - kv_heads) * D + half
        tl.store(target, turned_first, mask=inside & is_v)
        tl.store(target + D // 2, turned_second, mask=inside & is_v)


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
    tokens, heads = qkv.shape[0], qkv.shape[1] // dim
    q_heads = heads - 2 * kv_heads
    out = torch.empty(tokens, q_heads, dim, dtype=qkv.dtype, device=qkv.device)
    if tokens:
        _qk_norm_rope_cache_kernel[(tokens, ceil_div(heads, HEADS))](
            qkv,
            qkv if q_weight is None else q_weight,
            qkv if k_weight is None else k_weight,
            cos_sin,
            positions,
            k_cache,
            v_cache,
            slot_mapping,
            out,
            qkv.stride(0),
            q_heads,
            kv_heads,
            eps,
            D=dim,
            HALF=power_of_two(dim // 2),
            HEADS=HEADS,
            NORM=q_weight is not None,
            num_warps=1,
            **launch_options(qkv),
        )
    return out
