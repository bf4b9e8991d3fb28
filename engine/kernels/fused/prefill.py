"""Causal grouped-query attention of chunks of prompts over the paged cache.

One tile holds the queries of ``TILE / GROUP`` tokens times the GROUP heads that share a key head, so a key is read once
for all of them. The softmax is the online one in base 2.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.fused.config import PrefillTiles, prefill_tiles
from engine.kernels.fused.launch import await_previous, launch_options, release_next
from engine.kernels.fused.paging import LOG2E, find_sequence
from engine.kernels.fused.sizes import power_of_two

GLUON_RELEASE = "3.6."
"""The release of Triton that hopper_prefill is written for: Gluon's interface is not a settled one, so another release
must not even import it."""


@triton.jit
def _attend(
    q,
    accumulated,
    peak,
    mass,
    first,
    last,
    limit,
    k_cache,
    v_cache,
    table,
    slot_stride,
    scale,
    BLOCK_SIZE: tl.constexpr,
    D: tl.constexpr,
    DIM: tl.constexpr,
    SPAN: tl.constexpr,
    MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    dims = tl.arange(0, DIM)
    for start in tl.range(first, last, SPAN):
        token = start + tl.arange(0, SPAN)
        held = token < last
        block = tl.load(table + token // BLOCK_SIZE, mask=held, other=0).to(tl.int64)
        entry = (block * BLOCK_SIZE + token % BLOCK_SIZE) * slot_stride
        mask = held[:, None] & (dims < D)[None, :] if MASKED or D < DIM else None
        rest = 0.0 if MASKED or D < DIM else None
        key = tl.load(k_cache + entry[:, None] + dims[None, :], mask=mask, other=rest)
        score = tl.dot(q, tl.trans(key), input_precision=PRECISION) * scale
        if MASKED:
            score = tl.where(token[None, :] <= limit[:, None], score, float("-inf"))
        higher = tl.maximum(peak, tl.max(score, axis=1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp2(score - base[:, None])
        shrink = tl.exp2(peak - base)
        mass = mass * shrink + tl.sum(weight, axis=1)
        value = tl.load(v_cache + entry[:, None] + dims[None, :], mask=mask, other=rest)
        accumulated = tl.dot(weight.to(value.dtype), value, accumulated * shrink[:, None], input_precision=PRECISION)
        peak = higher
    return accumulated, peak, mass


@triton.jit
def _prefill_kernel(
    q,
    k_cache,
    v_cache,
    block_table,
    context_lens,
    query_start,
    out,
    sequences,
    q_heads,
    q_stride,
    table_stride,
    scale,
    GROUP: tl.constexpr,
    GROUP_PAD: tl.constexpr,
    TILE: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    D: tl.constexpr,
    DIM: tl.constexpr,
    PRECISION: tl.constexpr,
    PDL: tl.constexpr,
):
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    release_next(PDL)
    await_previous(PDL)
    row = tl.arange(0, TILE)
    head = row % GROUP_PAD
    sequence = find_sequence(query_start, tile, sequences, GROUP_PAD, TILE)
    begin = tl.load(query_start + sequence)
    count = tl.load(query_start + sequence + 1) - begin
    local = (tile - begin * GROUP_PAD // TILE - sequence) * (TILE // GROUP_PAD) + row // GROUP_PAD
    if (tile - begin * GROUP_PAD // TILE - sequence) * (TILE // GROUP_PAD) >= count:
        return
    context = tl.load(context_lens + sequence)
    active = (head < GROUP) & (local < count)
    limit = context - count + local
    dims = tl.arange(0, DIM)
    query = begin + local
    q_rows = query.to(tl.int64) * q_stride + (kv_head * GROUP + head) * D
    q_tile = tl.load(q + q_rows[:, None] + dims[None, :], mask=active[:, None] & (dims < D)[None, :], other=0.0)
    end = tl.minimum(context, tl.max(limit) + 1)
    peak = tl.full([TILE], float("-inf"), dtype=tl.float32)
    mass = tl.zeros([TILE], dtype=tl.float32)
    accumulated = tl.zeros([TILE, DIM], dtype=tl.float32)
    keys = k_cache + kv_head * D
    values = v_cache + kv_head * D
    table = block_table + sequence.to(tl.int64) * table_stride
    slot_stride = tl.num_programs(1) * D
    # The blocks that every query of the tile sees whole need no mask.
    clear = tl.minimum(end, tl.min(limit) + 1) // SPAN * SPAN
    accumulated, peak, mass = _attend(
        q_tile, accumulated, peak, mass, 0, clear, limit, keys, values, table, slot_stride, scale,
        BLOCK_SIZE, D, DIM, SPAN, False, PRECISION,
    )  # fmt: skip
    accumulated, peak, mass = _attend(
        q_tile, accumulated, peak, mass, clear, end, limit, keys, values, table, slot_stride, scale,
        BLOCK_SIZE, D, DIM, SPAN, True, PRECISION,
    )  # fmt: skip
    rows = query.to(tl.int64) * q_heads + kv_head * GROUP + head
    value = accumulated / tl.where(mass > 0.0, mass, 1.0)[:, None]
    mask = active[:, None] & (dims < D)[None, :]
    tl.store(out + rows[:, None] * D + dims[None, :], value.to(out.dtype.element_ty), mask=mask)


def launch_prefill(
    q: Tensor,
    caches: tuple[Tensor, Tensor],
    block_table: Tensor,
    context_lens: Tensor,
    query_start: Tensor,
    scale: float,
    tiles: PrefillTiles,
) -> Tensor:
    """``prefill_attention`` with a given tile."""
    k_cache, v_cache = caches
    kv_heads, dim = k_cache.shape[-2:]
    tokens, heads, _ = q.shape
    group = heads // kv_heads
    pad = power_of_two(group)
    tile = max(tiles.rows, pad)
    sequences = context_lens.shape[0]
    out = torch.zeros(tokens, heads, dim, dtype=q.dtype, device=q.device)
    if not tokens:
        return out
    _prefill_kernel[(tokens * pad // tile + sequences, kv_heads)](
        q,
        k_cache,
        v_cache,
        block_table,
        context_lens,
        query_start,
        out,
        sequences,
        heads,
        q.stride(0),
        block_table.stride(0),
        scale * LOG2E,
        GROUP=group,
        GROUP_PAD=pad,
        TILE=tile,
        SPAN=tiles.span,
        BLOCK_SIZE=k_cache.shape[1],
        D=dim,
        DIM=max(16, power_of_two(dim)),
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=tiles.warps,
        num_stages=tiles.stages,
        **launch_options(q),
    )
    return out


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
    if q.is_cuda and triton.__version__.startswith(GLUON_RELEASE):
        from engine.kernels.fused import hopper_prefill

        if hopper_prefill.runs_on(q, k_cache):
            return hopper_prefill.prefill_attention(q, k_cache, v_cache, block_table, context_lens, query_start, scale)
    tiles = prefill_tiles(q.dtype == torch.float32)
    return launch_prefill(q, (k_cache, v_cache), block_table, context_lens, query_start, scale, tiles)
