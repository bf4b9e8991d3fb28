"""The routers' choice of experts: one program a token, the k best taken one after the other."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.fused.launch import await_previous, launch_options, release_next
from engine.kernels.fused.sizes import power_of_two


@triton.jit
def _take_best(choice, scores, weights, ids, row, K: tl.constexpr, SLOTS: tl.constexpr, EXPERTS: tl.constexpr):
    """The K best of ``choice``, written to ``ids`` and returned as (slots, their scores)."""
    expert = tl.arange(0, EXPERTS)
    slot = tl.arange(0, SLOTS)
    kept = tl.zeros([SLOTS], dtype=tl.float32)
    for index in tl.static_range(K):
        best = tl.argmax(choice, axis=0, tie_break_left=True)
        kept = tl.where(slot == index, tl.sum(tl.where(expert == best, scores, 0.0)), kept)
        choice = tl.where(expert == best, float("-inf"), choice)
        tl.store(ids + row * K + index, best)
    return slot, kept


@triton.jit
def _softmax_topk_kernel(
    logits,
    weights,
    ids,
    stride,
    experts,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    EXPERTS: tl.constexpr,
    RENORMALISE: tl.constexpr,
    PDL: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    release_next(PDL)
    await_previous(PDL)
    expert = tl.arange(0, EXPERTS)
    logit = tl.load(logits + row * stride + expert, mask=expert < experts, other=float("-inf")).to(tl.float32)
    scores = tl.exp(logit - tl.max(logit))
    slot, kept = _take_best(logit, scores, weights, ids, row, K, SLOTS, EXPERTS)
    total = tl.sum(kept) if RENORMALISE else tl.sum(scores)
    tl.store(weights + row * K + slot, kept / total, mask=slot < K)


@triton.jit
def _grouped_sigmoid_topk_kernel(
    logits,
    bias,
    weights,
    ids,
    stride,
    experts,
    scaling,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    EXPERTS: tl.constexpr,
    GROUPS: tl.constexpr,
    TOP_GROUPS: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    RENORMALISE: tl.constexpr,
    PDL: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    release_next(PDL)
    await_previous(PDL)
    expert = tl.arange(0, EXPERTS)
    inside = expert < experts
    scores = tl.sigmoid(tl.load(logits + row * stride + expert, mask=inside, other=0.0).to(tl.float32))
    choice = tl.where(inside, scores + tl.load(bias + expert, mask=inside, other=0.0).to(tl.float32), float("-inf"))
    if GROUPS > 1:
        group = expert // GROUP_SIZE
        standing = tl.full([EXPERTS], float("-inf"), dtype=tl.float32)
        for index in tl.static_range(GROUPS):
            members = tl.where(group == index, choice, float("-inf"))
            first = tl.argmax(members, axis=0, tie_break_left=True)
            second = tl.max(tl.where(expert == first, float("-inf"), members))
            standing = tl.where(group == index, tl.max(members) + second, standing)
        opened = tl.zeros([EXPERTS], dtype=tl.int32)
        for _ in tl.static_range(TOP_GROUPS):
            winner = tl.argmax(standing, axis=0, tie_break_left=True) // GROUP_SIZE
            opened = tl.where(group == winner, 1, opened)
            standing = tl.where(group == winner, float("-inf"), standing)
        choice = tl.where(opened == 1, choice, float("-inf"))
    slot, kept = _take_best(choice, scores, weights, ids, row, K, SLOTS, EXPERTS)
    if RENORMALISE:
        kept = kept / (tl.sum(kept) + 1e-20)
    tl.store(weights + row * K + slot, kept * scaling, mask=slot < K)


def _outputs(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    weights = torch.empty(logits.shape[0], k, dtype=torch.float32, device=logits.device)
    return weights, torch.empty(logits.shape[0], k, dtype=torch.int32, device=logits.device)


def route_softmax_topk(logits: Tensor, k: int, renormalise: bool) -> tuple[Tensor, Tensor]:
    """See ``engine.kernels.route_softmax_topk``."""
    weights, ids = _outputs(logits, k)
    if logits.shape[0]:
        _softmax_topk_kernel[(logits.shape[0],)](
            logits,
            weights,
            ids,
            logits.stride(0),
            logits.shape[1],
            K=k,
            SLOTS=power_of_two(k),
            EXPERTS=power_of_two(logits.shape[1]),
            RENORMALISE=renormalise,
            num_warps=1,
            **launch_options(logits),
        )
    return weights, ids


def route_grouped_sigmoid_topk(
    logits: Tensor, bias: Tensor, k: int, groups: int, top_groups: int, scaling: float, renormalise: bool
) -> tuple[Tensor, Tensor]:
    """See ``engine.kernels.route_grouped_sigmoid_topk``."""
    weights, ids = _outputs(logits, k)
    if logits.shape[0]:
        _grouped_sigmoid_topk_kernel[(logits.shape[0],)](
            logits,
            bias,
            weights,
            ids,
            logits.stride(0),
            logits.shape[1],
            scaling,
            K=k,
            SLOTS=power_of_two(k),
            EXPERTS=power_of_two(logits.shape[1]),
            GROUPS=groups,
            TOP_GROUPS=top_groups,
            GROUP_SIZE=logits.shape[1] // groups,
            RENORMALISE=renormalise,
            num_warps=1,
            **launch_options(logits),
        )
    return weights, ids
