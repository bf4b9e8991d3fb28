"""The experts: pairs sorted by expert, gate-and-up with the activation, down, and the weighted sum.

For few tokens each product is the streaming of the touched experts' weights, so tiles hold few rows and much weight;
for many it is arithmetic, and the same kernels run with large tiles.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.fused.config import ExpertTiles, expert_tiles
from engine.kernels.fused.launch import await_previous, launch_options, release_next
from engine.kernels.fused.moe_blocks import Blocks, sort_into_blocks
from engine.kernels.fused.norm import combine
from engine.kernels.fused.sizes import ceil_div

# Up to this many pairs each is a block of its own: sorting would cost more than the few experts read twice.
DIRECT_PAIRS = 32


@triton.jit
def _block_rows(pair_of_row, expert_of_block, block, pairs, expert_offset, ROWS: tl.constexpr, DIRECT: tl.constexpr):
    """The local expert of ``block`` and the pair numbers of its rows (``pairs`` for none)."""
    row = tl.arange(0, ROWS)
    expert = tl.load(expert_of_block + block)
    if DIRECT:
        expert -= expert_offset
        pair = tl.where(row == 0, block, pairs)
    else:
        pair = tl.load(pair_of_row + block * ROWS + row)
    return expert, pair


@triton.jit
def _product(total, x_tile, w_tile, SWAP: tl.constexpr, PRECISION: tl.constexpr):
    if SWAP:
        total = tl.dot(w_tile, tl.trans(x_tile), total, input_precision=PRECISION)
    else:
        total = tl.dot(x_tile, tl.trans(w_tile), total, input_precision=PRECISION)
    return total


@triton.jit
def _gate_up_kernel(
    x,
    weight,
    hidden,
    pair_of_row,
    expert_of_block,
    pairs,
    x_stride,
    expert_offset,
    local_experts,
    TOP_K: tl.constexpr,
    WIDTH: tl.constexpr,
    INNER: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    STEP: tl.constexpr,
    SWAP: tl.constexpr,
    DIRECT: tl.constexpr,
    PRECISION: tl.constexpr,
    PDL: tl.constexpr,
):
    block = tl.program_id(1)
    await_previous(PDL)
    expert, pair = _block_rows(pair_of_row, expert_of_block, block, pairs, expert_offset, ROWS, DIRECT)
    if (expert < 0) | (expert >= local_experts):
        return
    inside = pair < pairs
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)
    depth = tl.arange(0, STEP)
    gate_at = weight + expert.to(tl.int64) * (2 * INNER * WIDTH)
    gate_at += tl.minimum(col, INNER - 1)[:, None] * WIDTH + depth[None, :]
    x_at = x + (pair // TOP_K).to(tl.int64)[:, None] * x_stride + depth[None, :]
    shape: tl.constexpr = [COLS, ROWS] if SWAP else [ROWS, COLS]
    gate = tl.zeros(shape, dtype=tl.float32)
    up = tl.zeros(shape, dtype=tl.float32)
    for start in tl.range(0, WIDTH, STEP):
        if WIDTH % STEP == 0:
            x_tile = tl.load(x_at + start, mask=inside[:, None], other=0.0)
            gate_tile = tl.load(gate_at + start)
            up_tile = tl.load(gate_at + INNER * WIDTH + start)
        else:
            left = (depth < WIDTH - start)[None, :]
            x_tile = tl.load(x_at + start, mask=inside[:, None] & left, other=0.0)
            gate_tile = tl.load(gate_at + start, mask=left, other=0.0)
            up_tile = tl.load(gate_at + INNER * WIDTH + start, mask=left, other=0.0)
        gate = _product(gate, x_tile, gate_tile, SWAP, PRECISION)
        up = _product(up, x_tile, up_tile, SWAP, PRECISION)
    release_next(PDL)
    value = (gate * tl.sigmoid(gate) * up).to(hidden.dtype.element_ty)
    row_at = pair.to(tl.int64) * INNER
    kept = col < INNER
    if SWAP:
        tl.store(hidden + row_at[None, :] + col[:, None], value, mask=inside[None, :] & kept[:, None])
    else:
        tl.store(hidden + row_at[:, None] + col[None, :], value, mask=inside[:, None] & kept[None, :])


@triton.jit
def _down_kernel(
    hidden,
    weight,
    parts,
    pair_of_row,
    expert_of_block,
    pairs,
    expert_offset,
    local_experts,
    WIDTH: tl.constexpr,
    INNER: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    STEP: tl.constexpr,
    SWAP: tl.constexpr,
    DIRECT: tl.constexpr,
    PRECISION: tl.constexpr,
    PDL: tl.constexpr,
):
    block = tl.program_id(1)
    await_previous(PDL)
    expert, pair = _block_rows(pair_of_row, expert_of_block, block, pairs, expert_offset, ROWS, DIRECT)
    if (expert < 0) | (expert >= local_experts):
        return
    inside = pair < pairs
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)
    depth = tl.arange(0, STEP)
    w_at = weight + expert.to(tl.int64) * (WIDTH * INNER)
    w_at += tl.minimum(col, WIDTH - 1)[:, None] * INNER + depth[None, :]
    x_at = hidden + pair.to(tl.int64)[:, None] * INNER + depth[None, :]
    shape: tl.constexpr = [COLS, ROWS] if SWAP else [ROWS, COLS]
    total = tl.zeros(shape, dtype=tl.float32)
    for start in tl.range(0, INNER, STEP):
        if INNER % STEP == 0:
            x_tile = tl.load(x_at + start, mask=inside[:, None], other=0.0)
            w_tile = tl.load(w_at + start)
        else:
            left = (depth < INNER - start)[None, :]
            x_tile = tl.load(x_at + start, mask=inside[:, None] & left, other=0.0)
            w_tile = tl.load(w_at + start, mask=left, other=0.0)
        total = _product(total, x_tile, w_tile, SWAP, PRECISION)
    release_next(PDL)
    value = total.to(parts.dtype.element_ty)
    row_at = pair.to(tl.int64) * WIDTH
    kept = col < WIDTH
    if SWAP:
        tl.store(parts + row_at[None, :] + col[:, None], value, mask=inside[None, :] & kept[:, None])
    else:
        tl.store(parts + row_at[:, None] + col[None, :], value, mask=inside[:, None] & kept[None, :])


def gate_up(x: Tensor, weight: Tensor, blocks: Blocks, pairs: int, offset: int, tiles: ExpertTiles) -> Tensor:
    """``silu(gate) * up`` of every pair [pairs, I]; the rows of other ranks' experts stay unwritten."""
    local, double, width = weight.shape
    inner = double // 2
    hidden = torch.empty(pairs, inner, dtype=x.dtype, device=x.device)
    _gate_up_kernel[(ceil_div(inner, tiles.cols), blocks.count)](
        x,
        weight,
        hidden,
        blocks.pair_of_row,
        blocks.expert_of_block,
        pairs,
        x.stride(0),
        offset,
        local,
        TOP_K=pairs // x.shape[0],
        WIDTH=width,
        INNER=inner,
        ROWS=tiles.rows,
        COLS=tiles.cols,
        STEP=tiles.step,
        SWAP=tiles.swap,
        DIRECT=blocks.direct,
        PRECISION="ieee" if x.dtype == torch.float32 else "tf32",
        num_warps=tiles.warps,
        num_stages=tiles.stages,
        **launch_options(x),
    )
    return hidden


def down(hidden: Tensor, weight: Tensor, blocks: Blocks, offset: int, tiles: ExpertTiles) -> Tensor:
    """The down product of every pair [pairs, H], not yet weighted."""
    local, width, inner = weight.shape
    pairs = hidden.shape[0]
    parts = torch.empty(pairs, width, dtype=hidden.dtype, device=hidden.device)
    _down_kernel[(ceil_div(width, tiles.cols), blocks.count)](
        hidden,
        weight,
        parts,
        blocks.pair_of_row,
        blocks.expert_of_block,
        pairs,
        offset,
        local,
        WIDTH=width,
        INNER=inner,
        ROWS=tiles.rows,
        COLS=tiles.cols,
        STEP=tiles.step,
        SWAP=tiles.swap,
        DIRECT=blocks.direct,
        PRECISION="ieee" if hidden.dtype == torch.float32 else "tf32",
        num_warps=tiles.warps,
        num_stages=tiles.stages,
        **launch_options(hidden),
    )
    return parts


def moe_parts(x: Tensor, ids: Tensor, w_gate_up: Tensor, w_down: Tensor, expert_offset: int) -> Tensor:
    """See ``engine.kernels.moe_parts``."""
    tokens, k = ids.shape
    local, width, _ = w_down.shape
    pairs = tokens * k
    if not pairs:
        return torch.empty(tokens, k, width, dtype=x.dtype, device=x.device)
    first, second = (tiles.for_type(x.element_size()) for tiles in expert_tiles(pairs, local))
    if pairs <= DIRECT_PAIRS:
        blocks = Blocks(ids, ids, pairs, direct=True)
    else:
        blocks = sort_into_blocks(ids, first.rows, expert_offset, local)
    hidden = gate_up(x, w_gate_up, blocks, pairs, expert_offset, first)
    return down(hidden, w_down, blocks, expert_offset, second).view(tokens, k, width)


def fused_moe(
    x: Tensor,
    weights: Tensor,
    ids: Tensor,
    w_gate_up: Tensor,
    w_down: Tensor,
    expert_offset: int,
    local_experts: int,
) -> Tensor:
    """See ``engine.kernels.fused_moe``."""
    parts = moe_parts(x, ids, w_gate_up, w_down, expert_offset)
    return combine(parts, weights, ids, expert_offset, local_experts)
