"""Per-head norm, rotary embedding and the cache write in one pass over the fused projection."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.fused.launch import await_previous, launch_options, release_next


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
    k_block,
    k_slot,
    k_head,
    v_block,
    v_slot,
    v_head,
    block_size,
    q_heads,
    kv_heads,
    eps,
    D: tl.constexpr,
    HALF: tl.constexpr,
    NORM: tl.constexpr,
    PDL: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    release_next(PDL)
    await_previous(PDL)
    half = tl.arange(0, HALF)
    inside = half < D // 2
    source = qkv + token * qkv_stride + head * D + half
    first = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(source + D // 2, mask=inside, other=0.0).to(tl.float32)
    if head < q_heads + kv_heads:
        if NORM:
            scale = tl.rsqrt((tl.sum(first * first) + tl.sum(second * second)) / D + eps)
            weight = q_weight if head < q_heads else k_weight
            # Rounded to the model's type between norm and rotation, as the unfused layers do.
            first = (first * scale * tl.load(weight + half, mask=inside, other=0.0)).to(out.dtype.element_ty)
            second = (second * scale * tl.load(weight + D // 2 + half, mask=inside, other=0.0)).to(out.dtype.element_ty)
        row = cos_sin + tl.load(positions + token).to(tl.int64) * D + half
        cos = tl.load(row, mask=inside, other=0.0)
        sin = tl.load(row + D // 2, mask=inside, other=0.0)
        rotated = first.to(tl.float32) * cos - second.to(tl.float32) * sin
        second = second.to(tl.float32) * cos + first.to(tl.float32) * sin
        first = rotated
    else:
        first = first.to(tl.float32)
        second = second.to(tl.float32)
    if head < q_heads:
        target = out + (token * q_heads + head) * D + half
        tl.store(target, first.to(out.dtype.element_ty), mask=inside)
        tl.store(target + D // 2, second.to(out.dtype.element_ty), mask=inside)
    else:
        slot = tl.load(slot_mapping + token).to(tl.int64)
        inside &= slot >= 0
        block, offset = slot // block_size, slot % block_size
        if head < q_heads + kv_heads:
            target = k_cache + block * k_block + offset * k_slot + (head - q_heads) * k_head + half
        else:
            target = v_cache + block * v_block + offset * v_slot + (head - q_heads - kv_heads) * v_head + half
        tl.store(target, first.to(k_cache.dtype.element_ty), mask=inside)
        tl.store(target + D // 2, second.to(k_cache.dtype.element_ty), mask=inside)


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
    tokens, heads = len(qkv), qkv.shape[1] // dim
    q_heads = heads - 2 * kv_heads
    out = torch.empty(tokens, q_heads, dim, dtype=qkv.dtype, device=qkv.device)
    if tokens:
        _qk_norm_rope_cache_kernel[(tokens, heads)](
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
            *k_cache.stride()[:3],
            *v_cache.stride()[:3],
            k_cache.shape[1],
            q_heads,
            kv_heads,
            eps,
            D=dim,
            HALF=triton.next_power_of_2(dim // 2),
            NORM=q_weight is not None,
            num_warps=1,
            **launch_options(qkv),
        )
    return out
