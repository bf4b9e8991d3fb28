"""Decode attention over the paged cache, one query a sequence, the context split over programs.

A tile holds the query heads that share a key head. The fused form takes the raw projection: it norms and rotates
queries and key itself, starts the softmax with the new token out of registers, and writes that token to the cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.fused.config import DecodeTiles, decode_tiles
from engine.kernels.fused.launch import await_previous, launch_options
from engine.kernels.fused.paging import LOG2E, merge, split_buffers
from engine.kernels.fused.sizes import power_of_two


@triton.jit
def _normed(first, second, low, high, axis: tl.constexpr, D: tl.constexpr, eps):
    """Both halves of one or more heads, normed over the head with weights ``low`` and ``high``, in their own type."""
    wide_first, wide_second = first.to(tl.float32), second.to(tl.float32)
    squares = tl.sum(wide_first * wide_first + wide_second * wide_second, axis=axis, keep_dims=True)
    factor = tl.rsqrt(squares / D + eps)
    return (wide_first * factor * low).to(first.dtype), (wide_second * factor * high).to(first.dtype)


@triton.jit
def _rotated(first, second, cos, sin):
    wide_first, wide_second = first.to(tl.float32), second.to(tl.float32)
    turned = (wide_first * cos - wide_second * sin).to(first.dtype)
    return turned, (wide_second * cos + wide_first * sin).to(first.dtype)


@triton.jit
def _decode_kernel(
    q,
    q_weight,
    k_weight,
    cos_sin,
    positions,
    slot_mapping,
    k_cache,
    v_cache,
    block_table,
    context_lens,
    out,
    partial,
    statistics,
    q_heads,
    kv_heads,
    q_stride,
    table_stride,
    scale,
    eps,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
    SPAN: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    D: tl.constexpr,
    HALF: tl.constexpr,
    DIM: tl.constexpr,
    FUSED: tl.constexpr,
    NORM: tl.constexpr,
    PRECISION: tl.constexpr,
    PDL: tl.constexpr,
):
    sequence = tl.program_id(0)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    head = tl.arange(0, TILE)
    active = head < GROUP
    half = tl.arange(0, HALF)
    dims = tl.arange(0, DIM)
    half_in = half < D // 2
    dims_in = dims < D
    # The batch's tables and the weights are older than the kernel before this one: read while it still runs.
    context = tl.load(context_lens + sequence)
    end = context
    if FUSED:
        end = tl.maximum(context - 1, 0)
        slot = tl.load(slot_mapping + sequence).to(tl.int64)
        turn = cos_sin + tl.load(positions + sequence).to(tl.int64) * D + half
        cos = tl.load(turn, mask=half_in, other=0.0)
        sin = tl.load(turn + D // 2, mask=half_in, other=0.0)
        if NORM:
            q_low = tl.load(q_weight + half, mask=half_in, other=0.0).to(tl.float32)
            q_high = tl.load(q_weight + D // 2 + half, mask=half_in, other=0.0).to(tl.float32)
            k_low = tl.load(k_weight + half, mask=half_in, other=0.0).to(tl.float32)
            k_high = tl.load(k_weight + D // 2 + half, mask=half_in, other=0.0).to(tl.float32)
    chunk = tl.cdiv(tl.cdiv(end, SPLITS), SPAN) * SPAN
    first = split * chunk
    last = tl.minimum(first + chunk, end)
    await_previous(PDL)
    row = q + sequence.to(tl.int64) * q_stride
    q_at = row + (kv_head * GROUP + head)[:, None] * D + half[None, :]
    q_in = active[:, None] & half_in[None, :]
    q_first = tl.load(q_at, mask=q_in, other=0.0)
    q_second = tl.load(q_at + D // 2, mask=q_in, other=0.0)
    peak = tl.full([TILE], float("-inf"), dtype=tl.float32)
    mass = tl.zeros([TILE], dtype=tl.float32)
    total = tl.zeros([TILE, DIM], dtype=tl.float32)
    if FUSED:
        if NORM:
            q_first, q_second = _normed(q_first, q_second, q_low[None, :], q_high[None, :], 1, D, eps)
        q_first, q_second = _rotated(q_first, q_second, cos[None, :], sin[None, :])
        if (split == 0) & (context > 0):
            k_at = row + (q_heads + kv_head) * D + half
            new_first = tl.load(k_at, mask=half_in, other=0.0)
            new_second = tl.load(k_at + D // 2, mask=half_in, other=0.0)
            new_value = tl.load(row + (q_heads + kv_heads + kv_head) * D + dims, mask=dims_in, other=0.0)
            if NORM:
                new_first, new_second = _normed(new_first, new_second, k_low, k_high, 0, D, eps)
            new_first, new_second = _rotated(new_first, new_second, cos, sin)
            if slot >= 0:
                entry = (slot * kv_heads + kv_head) * D
                tl.store(k_cache + entry + half, new_first, mask=half_in)
                tl.store(k_cache + entry + D // 2 + half, new_second, mask=half_in)
                tl.store(v_cache + entry + dims, new_value, mask=dims_in)
            score = tl.sum(q_first.to(tl.float32) * new_first.to(tl.float32)[None, :], axis=1)
            score += tl.sum(q_second.to(tl.float32) * new_second.to(tl.float32)[None, :], axis=1)
            peak = score * scale
            mass += 1.0
            total += new_value.to(tl.float32)[None, :]
    keys = k_cache + kv_head * D + half[None, :]
    values = v_cache + kv_head * D + dims[None, :]
    table = block_table + sequence.to(tl.int64) * table_stride
    for start in tl.range(first, last, SPAN):
        token = start + tl.arange(0, SPAN)
        held = token < last
        block = tl.load(table + token // BLOCK_SIZE, mask=held, other=0).to(tl.int64)
        entry = (block * BLOCK_SIZE + token % BLOCK_SIZE) * kv_heads * D
        k_at = keys + entry[:, None]
        k_in = held[:, None] & half_in[None, :]
        v_in = held[:, None] & dims_in[None, :]
        k_first = tl.load(k_at, mask=k_in, other=0.0)
        k_second = tl.load(k_at + D // 2, mask=k_in, other=0.0)
        value = tl.load(values + entry[:, None], mask=v_in, other=0.0)
        score = tl.dot(q_first, tl.trans(k_first), input_precision=PRECISION)
        score = tl.dot(q_second, tl.trans(k_second), score, input_precision=PRECISION) * scale
        score = tl.where(held[None, :], score, float("-inf"))
        higher = tl.maximum(peak, tl.max(score, axis=1))
        weight = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(peak - higher)
        mass = mass * shrink + tl.sum(weight, axis=1)
        total = tl.dot(weight.to(value.dtype), value, total * shrink[:, None], input_precision=PRECISION)
        peak = higher
    rows = sequence.to(tl.int64) * q_heads + kv_head * GROUP + head
    out_in = active[:, None] & dims_in[None, :]
    if SPLITS == 1:
        result = total / tl.where(mass > 0.0, mass, 1.0)[:, None]
        tl.store(out + rows[:, None] * D + dims[None, :], result.to(out.dtype.element_ty), mask=out_in)
    else:
        rows = rows * SPLITS + split
        tl.store(statistics + rows * 2, peak, mask=active)
        tl.store(statistics + rows * 2 + 1, mass, mask=active)
        tl.store(partial + rows[:, None] * D + dims[None, :], total, mask=out_in & (mass > 0.0)[:, None])


def launch_decode(
    q: Tensor,
    rotation: tuple[Tensor, Tensor | None, Tensor | None, Tensor, Tensor, float] | None,
    caches: tuple[Tensor, Tensor],
    block_table: Tensor,
    context_lens: Tensor,
    scale: float,
    tiles: DecodeTiles,
) -> Tensor:
    """Launch the kernel: ``q`` [B, Hq, D], or the raw projection [B, (Hq + 2 Hkv) D] with its ``rotation``.

    ``rotation`` is (slot_mapping, q_weight, k_weight, cos_sin, positions, eps).
    """
    k_cache, v_cache = caches
    kv_heads, dim = k_cache.shape[-2:]
    sequences = q.shape[0]
    heads = q.shape[1] if rotation is None else q.shape[1] // dim - 2 * kv_heads
    slots, q_weight, k_weight, cos_sin, positions, eps = rotation or (q, None, None, q, q, 0.0)
    out = torch.empty(sequences, heads, dim, dtype=q.dtype, device=q.device)
    splits = tiles.splits
    partial, statistics = split_buffers(sequences * heads, splits, dim, q) if splits > 1 else (out, out)
    if not sequences:
        return out
    _decode_kernel[(sequences, kv_heads, splits)](
        q,
        q if q_weight is None else q_weight,
        q if k_weight is None else k_weight,
        cos_sin,
        positions,
        slots,
        k_cache,
        v_cache,
        block_table,
        context_lens,
        out,
        partial,
        statistics,
        heads,
        kv_heads,
        q.stride(0),
        block_table.stride(0),
        scale * LOG2E,
        eps,
        GROUP=heads // kv_heads,
        TILE=max(16, power_of_two(heads // kv_heads)),
        SPAN=tiles.span,
        SPLITS=splits,
        BLOCK_SIZE=k_cache.shape[1],
        D=dim,
        HALF=max(16, power_of_two(dim // 2)),
        DIM=max(16, power_of_two(dim)),
        FUSED=rotation is not None,
        NORM=q_weight is not None,
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=tiles.warps,
        num_stages=tiles.stages,
        **launch_options(q),
    )
    if splits > 1:
        merge(partial, statistics, out)
    return out


def decode_attention(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, context_lens: Tensor, scale: float
) -> Tensor:
    """See ``engine.kernels.decode_attention``."""
    tiles = decode_tiles(q.shape[0] * k_cache.shape[2], q.dtype == torch.float32)
    return launch_decode(q.contiguous(), None, (k_cache, v_cache), block_table, context_lens, scale, tiles)


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
    rotation = (slot_mapping, q_weight, k_weight, cos_sin, positions, eps)
    tiles = decode_tiles(qkv.shape[0] * k_cache.shape[2], qkv.dtype == torch.float32)
    return launch_decode(qkv, rotation, (k_cache, v_cache), block_table, context_lens, scale, tiles)
