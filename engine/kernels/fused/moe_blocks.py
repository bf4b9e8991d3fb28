"""Sorting (token, expert) pairs into blocks of rows of one expert, on the device.

A block holds ``rows`` pairs of one expert; what it lacks is filled with the pair number ``pairs`` (none). How many
blocks there can be follows from the shapes, so the grid is static; blocks beyond those needed carry expert -1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.fused.launch import await_previous, launch_options, release_next
from engine.kernels.fused.sizes import power_of_two

# The pairs that one program can rank in registers.
ONE_PASS = 1024


@dataclass(frozen=True)
class Blocks:
    """``pair_of_row`` [count * rows] int32 and ``expert_of_block`` [count] int32 (local numbers, -1 for none).

    With ``direct``, block b is pair b alone and both are the router's ids: nothing was sorted.
    """

    pair_of_row: Tensor
    expert_of_block: Tensor
    count: int
    direct: bool


@triton.jit
def _sort_kernel(
    ids,
    pair_of_row,
    expert_of_block,
    pairs,
    expert_offset,
    local_experts,
    count,
    ROWS: tl.constexpr,
    PAIRS: tl.constexpr,
    BINS: tl.constexpr,
    COUNT: tl.constexpr,
    PDL: tl.constexpr,
):
    expert = tl.program_id(0)
    release_next(PDL)
    await_previous(PDL)
    pair = tl.arange(0, PAIRS)
    local = tl.load(ids + pair, mask=pair < pairs, other=-1) - expert_offset
    here = (pair < pairs) & (local >= 0) & (local < local_experts)
    sizes = tl.histogram(tl.where(here, local, 0), BINS, mask=here)
    blocks = (sizes + ROWS - 1) // ROWS
    number = tl.arange(0, BINS)
    first = tl.sum(tl.where(number < expert, blocks, 0))
    own = tl.sum(tl.where(number == expert, blocks, 0))
    mine = here & (local == expert)
    rank = tl.cumsum(mine.to(tl.int32), axis=0) - 1
    tl.store(pair_of_row + first * ROWS + rank, pair, mask=mine)
    size = tl.sum(mine.to(tl.int32))
    # Of the last block, the rows past the expert's pairs.
    spare = size + tl.arange(0, ROWS)
    tl.store(pair_of_row + first * ROWS + spare, pairs + tl.zeros([ROWS], dtype=tl.int32), mask=spare < own * ROWS)
    block = tl.arange(0, COUNT)
    tl.store(expert_of_block + first + block, expert + tl.zeros([COUNT], dtype=tl.int32), mask=block < own)
    if expert == local_experts - 1:
        used = first + own
        tl.store(expert_of_block + block, tl.full([COUNT], -1, dtype=tl.int32), mask=(block >= used) & (block < count))


def _sort_many(ids: Tensor, rows: int, count: int, expert_offset: int, local_experts: int) -> tuple[Tensor, Tensor]:
    """The same by torch's sort, for prefill, where its dozen launches vanish beside the products."""
    pairs = ids.numel()
    local = ids.flatten() - expert_offset
    local = torch.where((local >= 0) & (local < local_experts), local, local_experts)
    ordered, order = local.sort(stable=True)
    experts = torch.arange(local_experts + 1, device=ids.device, dtype=ordered.dtype)
    start = torch.searchsorted(ordered, experts)
    sizes = start[1:] - start[:-1]
    last_block = ((sizes + rows - 1) // rows).cumsum(0)
    first_block = torch.cat((last_block.new_zeros(1), last_block))
    # Pairs of other ranks' experts land in one spare row past the end.
    rank = torch.arange(pairs, device=ids.device) - start[ordered.long()]
    row = torch.where(ordered < local_experts, first_block[ordered.long()] * rows + rank, count * rows)
    pair_of_row = torch.full((count * rows + 1,), pairs, dtype=torch.int32, device=ids.device)
    pair_of_row[row] = order.int()
    block = torch.arange(count, device=ids.device)
    expert_of_block = torch.searchsorted(last_block, block, right=True)
    return pair_of_row, torch.where(expert_of_block < local_experts, expert_of_block, -1).int()


def sort_into_blocks(ids: Tensor, rows: int, expert_offset: int, local_experts: int) -> Blocks:
    """Sort the pairs of ``ids`` [T, k] int32 into blocks of ``rows``."""
    pairs = ids.numel()
    count = min(pairs, local_experts + pairs // rows)
    if pairs > ONE_PASS:
        return Blocks(*_sort_many(ids, rows, count, expert_offset, local_experts), count, direct=False)
    pair_of_row = torch.empty(count * rows, dtype=torch.int32, device=ids.device)
    expert_of_block = torch.empty(count, dtype=torch.int32, device=ids.device)
    _sort_kernel[(local_experts,)](
        ids,
        pair_of_row,
        expert_of_block,
        pairs,
        expert_offset,
        local_experts,
        count,
        ROWS=rows,
        PAIRS=max(32, power_of_two(pairs)),
        BINS=max(32, power_of_two(local_experts)),
        COUNT=power_of_two(count),
        num_warps=4,
        **launch_options(ids),
    )
    return Blocks(pair_of_row, expert_of_block, count, direct=False)
