"""Causal grouped-query attention of chunks of prompts over the paged cache, for Hopper.

Two warp groups form the attention of 64 rows each, and one warp copies keys and values for both, a page at a time by
the bulk copy engine, as soon as a round's room is empty. Within a warp group a round's scores are asked for before the
last round's weights meet their values, so both products are in flight while the softmax is formed; and no barrier holds
the two groups together, so one's softmax falls into the other's products.

Written in Gluon, which states layouts, copies and waits itself. What it cannot run on takes the portable kernel.
"""

from __future__ import annotations

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from engine.kernels.fused.paging import LOG2E
from engine.kernels.fused.sizes import power_of_two

# Rows of (token, head of a group) of one warp group, and of both.
ROWS = gl.constexpr(64)
TILE = gl.constexpr(128)
# Keys of one round, and rounds whose keys and values have room at once.
SPAN = gl.constexpr(128)
STAGES = gl.constexpr(2)
# The widest row that the copy engine spreads over the memory banks, in bytes.
SWIZZLE = 128
WARPS = 4


@gluon.jit
def _find_sequence(query_start, tile, sequences, TOKENS: gl.constexpr):
    """The sequence of ``tile``; sequence i's tiles begin at ``query_start[i] // TOKENS + i``."""
    low = 0
    high = sequences
    while low < high:
        middle = (low + high) // 2
        if gl.load(query_start + middle) // TOKENS + middle <= tile:
            low = middle + 1
        else:
            high = middle
    return low - 1


@gluon.jit
def _copy_round(pages, table, last, column, round, room, full, empty):
    """Wait until the round's room is empty, then start to copy its pages; those past the ``last`` repeat it."""
    SIZE: gl.constexpr = pages.block_type.shape[0]
    PART: gl.constexpr = pages.block_type.shape[1]
    DIM: gl.constexpr = room.shape[2]
    slot = round % STAGES
    to = room.index(slot)
    arrived = full.index(slot)
    mbarrier.wait(empty.index(slot), ((round // STAGES) & 1) ^ 1)
    mbarrier.expect(arrived, SPAN * DIM * (room.dtype.primitive_bitwidth // 8))
    for page in gl.static_range(SPAN // SIZE):
        block = gl.load(table + gl.minimum(round * (SPAN // SIZE) + page, last))
        for part in gl.static_range(DIM // PART):
            place = to.slice(page * SIZE, SIZE, dim=0).slice(part * PART, PART, dim=1)
            tma.async_copy_global_to_shared(pages, [block * SIZE, column + part * PART], arrived, place)


@gluon.jit
def _copy(keys, values, table, last, column, rounds, rooms, full, empty):
    """The copying warp: every round's keys, then its values."""
    for round in range(rounds):
        _copy_round(keys, table, last, column, round, rooms[0], full[0], empty[0])
        _copy_round(values, table, last, column, round, rooms[1], full[1], empty[1])


@gluon.jit
def _await_round(round, room, full):
    slot = round % STAGES
    mbarrier.wait(full.index(slot), (round // STAGES) & 1)
    return room.index(slot)


@gluon.jit
def _scores(q_room, round, room, full, LAYOUT: gl.constexpr):
    """Ask for the round's scores."""
    key = _await_round(round, room, full)
    nothing = gl.zeros([ROWS, SPAN], gl.float32, LAYOUT)
    return warpgroup_mma(q_room, key.permute((1, 0)), nothing, use_acc=False, is_async=True)


@gluon.jit
def _softmax(score, peak, mass, limit, first, scale, MASKED: gl.constexpr, LAYOUT: gl.constexpr):
    """One round of the online softmax in base 2: (weights, peak, mass, factor for what was summed before)."""
    if MASKED:
        token = first + gl.arange(0, SPAN, layout=gl.SliceLayout(0, LAYOUT))
        score = gl.where(token[None, :] <= limit[:, None], score, float("-inf"))
    higher = gl.maximum(peak, gl.max(score, axis=1) * scale)
    weight = gl.exp2(score * scale - higher[:, None])
    shrink = gl.exp2(peak - higher)
    return weight, higher, mass * shrink + gl.sum(weight, axis=1), shrink


@gluon.jit
def _attend(
    state,
    begin,
    end,
    limit,
    scale,
    q_room,
    rooms,
    full,
    empty,
    MASKED: gl.constexpr,
    SCORE: gl.constexpr,
    SUM: gl.constexpr,
    WEIGHT: gl.constexpr,
):
    """Rounds ``begin`` to ``end``: the scores of each, and the values of the one before it."""
    total, weight, peak, mass = state
    for round in range(begin, end):
        asked = _scores(q_room, round, rooms[0], full[0], SCORE)
        value = _await_round(round - 1, rooms[1], full[1])
        summed = warpgroup_mma(weight, value, total, is_async=True)
        score = warpgroup_mma_wait(1, deps=(asked,))
        mbarrier.arrive(empty[0].index(round % STAGES), count=1)
        wide, peak, mass, shrink = _softmax(score, peak, mass, limit, round * SPAN, scale, MASKED, SCORE)
        total, weight = warpgroup_mma_wait(0, deps=(summed, weight))
        mbarrier.arrive(empty[1].index((round - 1) % STAGES), count=1)
        total = total * gl.convert_layout(shrink, gl.SliceLayout(1, SUM))[:, None]
        weight = gl.convert_layout(wide.to(q_room.dtype), WEIGHT)
    return total, weight, peak, mass


@gluon.jit
def _attend_rows(
    half,
    q,
    out,
    place,
    strides,
    scale,
    q_rooms,
    rooms,
    full,
    empty,
    GROUP: gl.constexpr,
    GROUP_PAD: gl.constexpr,
):
    """A warp group's rows, from the queries to the output."""
    begin, start, count, cached, rounds, kv_head = place
    q_stride, out_stride = strides
    DIM: gl.constexpr = q_rooms.shape[2]
    SCORE: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, SPAN, 16])
    SUM: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIM, 16])
    WEIGHT: gl.constexpr = gl.DotOperandLayout(0, SUM, 2)
    MEMORY: gl.constexpr = gl.BlockedLayout([1, 8], [32 // (DIM // 8), DIM // 8], [4, 1], [1, 0])
    row = half * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, MEMORY))
    dims = gl.arange(0, DIM, layout=gl.SliceLayout(0, MEMORY))
    local = start + row // GROUP_PAD
    head = row % GROUP_PAD
    active = (head < GROUP) & (local < count)
    query = (begin + local).to(gl.int64)
    head += kv_head * GROUP
    q_at = query * q_stride + head * DIM
    q_room = q_rooms.index(half)
    q_room.store(gl.load(q + q_at[:, None] + dims[None, :], mask=active[:, None], other=0.0))
    fence_async_shared()
    limit = cached + start + (half * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, SCORE))) // GROUP_PAD
    peak = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, SCORE))
    mass = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, SCORE))
    total = gl.zeros([ROWS, DIM], gl.float32, SUM)
    score = warpgroup_mma_wait(0, deps=(_scores(q_room, 0, rooms[0], full[0], SCORE),))
    mbarrier.arrive(empty[0].index(0), count=1)
    wide, peak, mass, _ = _softmax(score, peak, mass, limit, 0, scale, True, SCORE)
    state = (total, gl.convert_layout(wide.to(q_room.dtype), WEIGHT), peak, mass)
    # The rounds that every query of the tile sees whole need no mask.
    clear = gl.minimum(gl.maximum((cached + start + 1) // SPAN, 1), rounds)
    state = _attend(state, 1, clear, limit, scale, q_room, rooms, full, empty, False, SCORE, SUM, WEIGHT)
    state = _attend(state, clear, rounds, limit, scale, q_room, rooms, full, empty, True, SCORE, SUM, WEIGHT)
    total, weight, peak, mass = state
    total = warpgroup_mma(weight, _await_round(rounds - 1, rooms[1], full[1]), total)
    result = total / gl.convert_layout(mass, gl.SliceLayout(1, SUM))[:, None]
    out_at = query * out_stride + head * DIM
    gl.store(
        out + out_at[:, None] + dims[None, :],
        gl.convert_layout(result.to(q_room.dtype), MEMORY),
        mask=active[:, None],
    )


@gluon.jit
def _attend_first(q, out, place, strides, scale, q_rooms, rooms, full, empty, GROUP: gl.constexpr, PAD: gl.constexpr):
    _attend_rows(0, q, out, place, strides, scale, q_rooms, rooms, full, empty, GROUP, PAD)


@gluon.jit
def _attend_second(q, out, place, strides, scale, q_rooms, rooms, full, empty, GROUP: gl.constexpr, PAD: gl.constexpr):
    _attend_rows(1, q, out, place, strides, scale, q_rooms, rooms, full, empty, GROUP, PAD)


@gluon.jit
def _barriers(count: gl.constexpr):
    """One barrier a stage."""
    barriers = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(STAGES):
        mbarrier.init(barriers.index(slot), count=count)
    return barriers


@gluon.jit
def _prefill_kernel(
    q,
    keys,
    values,
    block_table,
    context_lens,
    query_start,
    out,
    sequences,
    q_stride,
    out_stride,
    table_stride,
    scale,
    GROUP: gl.constexpr,
    GROUP_PAD: gl.constexpr,
    DIM: gl.constexpr,
):
    TOKENS: gl.constexpr = TILE // GROUP_PAD
    ROOM: gl.constexpr = gl.NVMMASharedLayout.get_default_for([SPAN, DIM], keys.dtype)
    # The tiles with the longest way to go begin first, so that the short ones fill the end.
    tile = gl.num_programs(0) - 1 - gl.program_id(0)
    kv_head = gl.program_id(1)
    sequence = _find_sequence(query_start, tile, sequences, TOKENS)
    begin = gl.load(query_start + sequence)
    count = gl.load(query_start + sequence + 1) - begin
    start = (tile - begin // TOKENS - sequence) * TOKENS
    if start < count:
        cached = gl.load(context_lens + sequence) - count
        end = cached + gl.minimum(start + TOKENS, count)
        rounds = gl.cdiv(end, SPAN)
        table = block_table + sequence.to(gl.int64) * table_stride
        last = (end - 1) // keys.block_type.shape[0]
        q_rooms = gl.allocate_shared_memory(keys.dtype, [2, ROWS, DIM], ROOM)
        rooms = (
            gl.allocate_shared_memory(keys.dtype, [STAGES, SPAN, DIM], ROOM),
            gl.allocate_shared_memory(keys.dtype, [STAGES, SPAN, DIM], ROOM),
        )
        full = (_barriers(1), _barriers(1))
        empty = (_barriers(2), _barriers(2))
        place = (begin, start, count, cached, rounds, kv_head)
        rows = (q, out, place, (q_stride, out_stride), scale, q_rooms, rooms, full, empty, GROUP, GROUP_PAD)
        gl.warp_specialize(
            [
                (_attend_first, rows),
                (_attend_second, rows),
                (_copy, (keys, values, table, last, kv_head * DIM, rounds, rooms, full, empty)),
            ],
            [4, 1],  # warps of the second group and of the copying
            [240, 24],  # their registers a thread; the first group has the rest
        )


def runs_on(q: Tensor, k_cache: Tensor) -> bool:
    """Whether this kernel takes these queries and this cache."""
    _, size, _, dim = k_cache.shape
    hopper = torch.cuda.get_device_capability(q.device)[0] == 9
    pages = size % 8 == 0 and SPAN.value % size == 0 and k_cache.is_contiguous()
    return hopper and pages and q.dtype == torch.bfloat16 and dim in (64, 128)


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
    tokens, heads, dim = q.shape
    blocks, size, kv_heads, _ = k_cache.shape
    sequences = len(context_lens)
    group = heads // kv_heads
    pad = power_of_two(group)
    out = torch.zeros(tokens, heads, dim, dtype=q.dtype, device=q.device)
    if not tokens:
        return out
    part = min(dim, SWIZZLE // q.element_size())
    layout = gl.NVMMASharedLayout.get_default_for([size, part], gl.bfloat16)
    keys, values = (
        TensorDescriptor(cache, [blocks * size, kv_heads * dim], [kv_heads * dim, 1], [size, part], layout)
        for cache in (k_cache, v_cache)
    )
    _prefill_kernel[(tokens * pad // TILE.value + sequences, kv_heads)](
        q,
        keys,
        values,
        block_table,
        context_lens,
        query_start,
        out,
        sequences,
        q.stride(0),
        out.stride(0),
        block_table.stride(0),
        scale * LOG2E,
        GROUP=group,
        GROUP_PAD=pad,
        DIM=dim,
        num_warps=WARPS,
    )
    return out
