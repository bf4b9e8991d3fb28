"""Greedy and nucleus sampling in three kernels: the nucleus' edge, the best of each part of the vocabulary, the best.

A greedy row leaves the first at once and adds no noise in the second.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.fused.launch import await_previous, launch_options, release_next
from engine.kernels.fused.sizes import ceil_div, power_of_two

# Tokens of the vocabulary that one program looks through.
PART = 4096


@triton.jit
def _mix(value):
    """The 32-bit hash of the reference."""
    value = (value ^ (value >> 16)) * 0x21F0AAAD
    value = (value ^ (value >> 15)) * 0x735A2D97
    return value ^ (value >> 15)


@triton.jit
def _ordered(value):
    """An int32 that orders as the float32 ``value`` does."""
    bits = value.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _nucleus_kernel(logits, temperature, top_p, edge, stride, vocab, BLOCK: tl.constexpr, PDL: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    release_next(PDL)
    await_previous(PDL)
    heat = tl.load(temperature + row)
    share = tl.load(top_p + row)
    least = -2147483648
    if (heat > 0.0) & (share < 1.0):
        heat = tl.maximum(heat, 1e-5)
        top = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
        for start in tl.range(0, vocab, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            value = tl.load(logits + row * stride + cols, mask=cols < vocab, other=float("-inf")).to(tl.float32)
            top = tl.maximum(top, value / heat)
        peak = tl.max(top)
        whole = tl.zeros([BLOCK], dtype=tl.float32)
        for start in tl.range(0, vocab, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            value = tl.load(logits + row * stride + cols, mask=cols < vocab, other=float("-inf")).to(tl.float32)
            whole += tl.exp(value / heat - peak)
        wanted = tl.sum(whole) * share
        # The lowest value that has less than the wanted mass above it, by bisection over the float's ordered bits.
        low = _ordered(peak - 90.0)
        high = _ordered(peak)
        while low < high:
            middle = (low & high) + ((low ^ high) >> 1)
            above = tl.zeros([BLOCK], dtype=tl.float32)
            for start in tl.range(0, vocab, BLOCK):
                cols = start + tl.arange(0, BLOCK)
                value = tl.load(logits + row * stride + cols, mask=cols < vocab, other=float("-inf")).to(tl.float32)
                value = value / heat
                above += tl.where(_ordered(value) > middle, tl.exp(value - peak), 0.0)
            if tl.sum(above) < wanted:
                high = middle
            else:
                low = middle + 1
        least = low
    tl.store(edge + row, least)


@triton.jit
def _part_kernel(
    logits,
    temperature,
    edge,
    seed,
    position,
    best,
    token,
    stride,
    vocab,
    parts,
    PART: tl.constexpr,
    PDL: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    release_next(PDL)
    await_previous(PDL)
    cols = part * PART + tl.arange(0, PART)
    inside = cols < vocab
    value = tl.load(logits + row * stride + cols, mask=inside, other=float("-inf")).to(tl.float32)
    heat = tl.load(temperature + row)
    if heat > 0.0:
        value = value / tl.maximum(heat, 1e-5)
        number = tl.load(seed + row).to(tl.int64)
        low = (number & 0xFFFFFFFF).to(tl.uint32)
        high = ((number >> 32) & 0xFFFFFFFF).to(tl.uint32)
        place = (tl.load(position + row).to(tl.int64) & 0xFFFFFFFF).to(tl.uint32)
        draw = _mix(_mix(_mix(low) ^ _mix(high) ^ place) ^ _mix((cols + 1).to(tl.uint32)))
        uniform = (draw >> 8).to(tl.float32) * (1.0 / 16777216.0) + 1.0 / 33554432.0
        exponential = tl.where(uniform < 1e-3, uniform + uniform * uniform * 0.5, -tl.log(1.0 - uniform))
        kept = inside & (_ordered(value) >= tl.load(edge + row))
        value = tl.where(kept, value - tl.log(exponential), float("-inf"))
    winner = tl.argmax(value, axis=0, tie_break_left=True)
    tl.store(best + row * parts + part, tl.max(value))
    tl.store(token + row * parts + part, part * PART + winner)


@triton.jit
def _choose_kernel(best, token, out, parts, PARTS: tl.constexpr, PDL: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    release_next(PDL)
    await_previous(PDL)
    part = tl.arange(0, PARTS)
    value = tl.load(best + row * parts + part, mask=part < parts, other=float("-inf"))
    winner = tl.argmax(value, axis=0, tie_break_left=True)
    tl.store(out + row, tl.load(token + row * parts + winner).to(tl.int64))


def sample(logits: Tensor, temperature: Tensor, top_p: Tensor, seed: Tensor, position: Tensor) -> Tensor:
    """See ``engine.kernels.sample``."""
    rows, vocab = logits.shape
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if not rows:
        return out
    parts = ceil_div(vocab, PART)
    edge = torch.empty(rows, dtype=torch.int32, device=logits.device)
    best = torch.empty(rows, parts, dtype=torch.float32, device=logits.device)
    token = torch.empty(rows, parts, dtype=torch.int32, device=logits.device)
    options = launch_options(logits)
    stride = logits.stride(0)
    _nucleus_kernel[(rows,)](logits, temperature, top_p, edge, stride, vocab, BLOCK=4096, num_warps=16, **options)
    _part_kernel[(rows, parts)](
        logits, temperature, edge, seed, position, best, token, stride, vocab, parts, PART=PART, num_warps=8, **options
    )
    _choose_kernel[(rows,)](best, token, out, parts, PARTS=power_of_two(parts), num_warps=1, **options)
    return out
