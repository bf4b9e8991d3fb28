"""Latent attention over the paged latent cache, for decode and chunked prefill, and the write to that cache.

All heads share one cached row a token, so a tile is rows of (token, head) and the row is read once for the whole tile,
as key and as value.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.fused.launch import await_previous, launch_options
from engine.kernels.fused.paging import LOG2E, find_sequence, merge, split_buffers, split_count
from engine.kernels.fused.sizes import ceil_div, power_of_two


@triton.jit
def _norm_rope_cache_kernel(
    q_rope,
    compressed,
    kv_weight,
    cos_sin,
    positions,
    latent_cache,
    slot_mapping,
    out,
    q_stride,
    q_head,
    compressed_stride,
    cache_block,
    cache_slot,
    block_size,
    heads,
    eps,
    L: tl.constexpr,
    LATENT: tl.constexpr,
    R: tl.constexpr,
    HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    PDL: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    await_previous(PDL)
    half = tl.arange(0, HALF)
    inside = half < R // 2
    row = cos_sin + tl.load(positions + token).to(tl.int64) * R + half
    cos = tl.load(row, mask=inside, other=0.0)
    sin = tl.load(row + R // 2, mask=inside, other=0.0)
    first_at = half * 2 if INTERLEAVED else half
    second_at = half * 2 + 1 if INTERLEAVED else half + R // 2
    # The last program of a token holds the shared key and the latent, the others one query head each.
    source = compressed + token * compressed_stride + L
    if head < heads:
        source = q_rope + token * q_stride + head * q_head
    first = tl.load(source + first_at, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(source + second_at, mask=inside, other=0.0).to(tl.float32)
    rotated = (first * cos - second * sin).to(out.dtype.element_ty)
    turned = (second * cos + first * sin).to(out.dtype.element_ty)
    if head < heads:
        target = out + (token * heads + head) * R + half
        tl.store(target, rotated, mask=inside)
        tl.store(target + R // 2, turned, mask=inside)
    else:
        slot = tl.load(slot_mapping + token).to(tl.int64)
        if slot >= 0:
            target = latent_cache + (slot // block_size) * cache_block + (slot % block_size) * cache_slot
            tl.store(target + L + half, rotated, mask=inside)
            tl.store(target + L + R // 2 + half, turned, mask=inside)
            cols = tl.arange(0, LATENT)
            held = cols < L
            latent = tl.load(compressed + token * compressed_stride + cols, mask=held, other=0.0).to(tl.float32)
            latent *= tl.rsqrt(tl.sum(latent * latent) / L + eps)
            latent *= tl.load(kv_weight + cols, mask=held, other=0.0).to(tl.float32)
            tl.store(target + cols, latent.to(latent_cache.dtype.element_ty), mask=held)


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
    tokens, heads, rope = q_rope.shape
    out = torch.empty(tokens, heads, rope, dtype=q_rope.dtype, device=q_rope.device)
    if tokens:
        _norm_rope_cache_kernel[(tokens, heads + 1)](
            q_rope,
            compressed,
            kv_weight,
            cos_sin,
            positions,
            latent_cache,
            slot_mapping,
            out,
            q_rope.stride(0),
            q_rope.stride(1),
            compressed.stride(0),
            latent_cache.stride(0),
            latent_cache.stride(1),
            latent_cache.shape[1],
            heads,
            eps,
            L=kv_weight.shape[0],
            LATENT=power_of_two(kv_weight.shape[0]),
            R=rope,
            HALF=power_of_two(rope // 2),
            INTERLEAVED=interleaved,
            num_warps=1,
            **launch_options(q_rope),
        )
    return out


@triton.jit
def _latent_attention_kernel(
    q_latent,
    q_rope,
    latent_cache,
    block_table,
    context_lens,
    query_start,
    out,
    partial,
    statistics,
    sequences,
    heads,
    latent_token,
    latent_head,
    rope_token,
    rope_head,
    table_stride,
    block_size,
    scale,
    HEADS: tl.constexpr,
    TILE: tl.constexpr,
    SPAN: tl.constexpr,
    SPLITS: tl.constexpr,
    L: tl.constexpr,
    LATENT: tl.constexpr,
    R: tl.constexpr,
    ROPE: tl.constexpr,
    DECODE: tl.constexpr,
    PRECISION: tl.constexpr,
    PDL: tl.constexpr,
):
    tile = tl.program_id(0)
    split = tl.program_id(1)
    await_previous(PDL)
    if DECODE:
        sequence = tile // tl.cdiv(HEADS, TILE)
        begin = sequence
        count = 1
        row = tile % tl.cdiv(HEADS, TILE) * TILE + tl.arange(0, TILE)
    else:
        sequence = find_sequence(query_start, tile, sequences, HEADS, TILE)
        begin = tl.load(query_start + sequence)
        count = tl.load(query_start + sequence + 1) - begin
        start = (tile - begin * HEADS // TILE - sequence) * TILE
        if start >= count * HEADS:
            return
        row = start + tl.arange(0, TILE)
    local = row // HEADS
    head = row % HEADS
    active = (local < count) & (head < heads)
    query = (begin + local).to(tl.int64)
    context = tl.load(context_lens + sequence)
    limit = tl.where(active, context - count + local, -1)
    dims = tl.arange(0, LATENT)
    turns = tl.arange(0, ROPE)
    latent_in = (dims < L)[None, :]
    rope_in = (turns < R)[None, :]
    q_rows = q_latent + query * latent_token + head * latent_head
    q_tile = tl.load(q_rows[:, None] + dims[None, :], mask=active[:, None] & latent_in, other=0.0)
    q_rows = q_rope + query * rope_token + head * rope_head
    q_turned = tl.load(q_rows[:, None] + turns[None, :], mask=active[:, None] & rope_in, other=0.0)
    end = tl.minimum(context, tl.max(limit) + 1)
    chunk = tl.cdiv(tl.cdiv(end, SPLITS), SPAN) * SPAN
    first = split * chunk
    last = tl.minimum(first + chunk, end)
    peak = tl.full([TILE], float("-inf"), dtype=tl.float32)
    mass = tl.zeros([TILE], dtype=tl.float32)
    accumulated = tl.zeros([TILE, LATENT], dtype=tl.float32)
    table = block_table + sequence.to(tl.int64) * table_stride
    for begin_span in tl.range(first, last, SPAN):
        token = begin_span + tl.arange(0, SPAN)
        held = (token < last)[:, None]
        block = tl.load(table + token // block_size, mask=token < last, other=0).to(tl.int64)
        rows = latent_cache + ((block * block_size + token % block_size) * (L + R))[:, None]
        latent = tl.load(rows + dims[None, :], mask=held & latent_in, other=0.0)
        turned = tl.load(rows + L + turns[None, :], mask=held & rope_in, other=0.0)
        score = tl.dot(q_tile, tl.trans(latent), input_precision=PRECISION)
        score = tl.dot(q_turned, tl.trans(turned), score, input_precision=PRECISION) * scale
        score = tl.where(token[None, :] <= limit[:, None], score, float("-inf"))
        higher = tl.maximum(peak, tl.max(score, axis=1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp2(score - base[:, None])
        shrink = tl.exp2(peak - base)
        mass = mass * shrink + tl.sum(weight, axis=1)
        accumulated = tl.dot(weight.to(latent.dtype), latent, accumulated * shrink[:, None], input_precision=PRECISION)
        peak = higher
    rows = query * heads + head
    if SPLITS == 1:
        value = accumulated / tl.where(mass > 0.0, mass, 1.0)[:, None]
        tl.store(
            out + rows[:, None] * L + dims[None, :], value.to(out.dtype.element_ty), mask=active[:, None] & latent_in
        )
    else:
        rows = rows * SPLITS + split
        tl.store(statistics + rows * 2, peak, mask=active)
        tl.store(statistics + rows * 2 + 1, mass, mask=active)
        mask = (active & (mass > 0.0))[:, None] & latent_in
        tl.store(partial + rows[:, None] * L + dims[None, :], accumulated, mask=mask)


def _launch(
    q_latent: Tensor,
    q_rope: Tensor,
    latent_cache: Tensor,
    block_table: Tensor,
    context_lens: Tensor,
    query_start: Tensor | None,
    scale: float,
    tile: int,
    warps: int,
) -> Tensor:
    tokens, heads, rank = q_latent.shape
    rope = q_rope.shape[-1]
    padded = power_of_two(heads)
    sequences = context_lens.shape[0]
    decode = query_start is None
    tiles = sequences * ceil_div(padded, tile) if decode else tokens * padded // tile + sequences
    splits = split_count(tiles, target=132) if decode else 1
    out = (torch.empty if decode else torch.zeros)(tokens, heads, rank, dtype=q_latent.dtype, device=q_latent.device)
    if not tokens:
        return out
    partial, statistics = split_buffers(tokens * heads, splits, rank, q_latent) if splits > 1 else (out, out)
    _latent_attention_kernel[(tiles, splits)](
        q_latent,
        q_rope,
        latent_cache,
        block_table,
        context_lens,
        context_lens if query_start is None else query_start,
        out,
        partial,
        statistics,
        sequences,
        heads,
        q_latent.stride(0),
        q_latent.stride(1),
        q_rope.stride(0),
        q_rope.stride(1),
        block_table.stride(0),
        latent_cache.shape[1],
        scale * LOG2E,
        HEADS=padded,
        TILE=tile,
        SPAN=32,
        SPLITS=splits,
        L=rank,
        LATENT=max(16, power_of_two(rank)),
        R=rope,
        ROPE=max(16, power_of_two(rope)),
        DECODE=decode,
        PRECISION="ieee" if q_latent.dtype == torch.float32 else "tf32",
        num_warps=warps,
        num_stages=2,
        **launch_options(q_latent),
    )
    if splits > 1:
        merge(partial, statistics, out)
    return out


def mla_decode_attention(
    q_latent: Tensor, q_rope: Tensor, latent_cache: Tensor, block_table: Tensor, context_lens: Tensor, scale: float
) -> Tensor:
    """See ``engine.kernels.mla_decode_attention``."""
    return _launch(q_latent, q_rope, latent_cache, block_table, context_lens, None, scale, 16, 4)


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
    tile, warps = (64, 8) if q_latent.dtype != torch.float32 else (16, 4)
    return _launch(q_latent, q_rope, latent_cache, block_table, context_lens, query_start, scale, tile, warps)
