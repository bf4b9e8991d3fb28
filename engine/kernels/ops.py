"""The public functions: their shapes, and the choice between plain torch and Triton.

T is tokens, B sequences, H the hidden size, D the head dimension, E experts, I an expert's inner size, V the vocabulary
size.
A paged cache is [blocks, block_size, ...], contiguous; a slot is ``block * block_size + offset``, and a negative one is
padding. ``block_table`` [B, max_blocks] int32 lists each sequence's blocks; only those that its context needs are read.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

from torch import Tensor


@cache
def _load(name: str) -> ModuleType:
    return import_module(name)


def _kernels(x: Tensor) -> ModuleType:
    # Triton is imported only once a CUDA tensor is seen: a CPU engine runs without it.
    return _load("engine.kernels.fused" if x.is_cuda else "engine.kernels.reference")


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension of ``x`` [..., H]."""
    out: Tensor = _kernels(x).rms_norm(x, weight, eps)
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The norm of ``x + residual`` [T, H], and that sum: the new residual stream."""
    normed, total = _kernels(x).add_rms_norm(x, residual, weight, eps)
    return normed, total


def combine_add_rms_norm(
    parts: Tensor,
    weights: Tensor,
    ids: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    expert_offset: int,
    local_experts: int,
) -> tuple[Tensor, Tensor]:
    """``add_rms_norm`` of the weighted sum over ``parts`` [T, k, H] (``moe_parts``): one layer's end, the next's start.

    ``weights`` and ``ids`` [T, k] are the router's; parts of experts outside the local range are left out.
    Returns (normed, new residual), both [T, H].
    """
    normed, total = _kernels(parts).combine_add_rms_norm(
        parts, weights, ids, residual, weight, eps, expert_offset, local_experts
    )
    return normed, total


def add_norm_router(
    x: Tensor, residual: Tensor, norm_weight: Tensor, router_weight: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """``add_rms_norm`` and the router's product with ``router_weight`` [E, H] in one, in the router's own type.

    Returns (normed [T, H], new residual [T, H], logits [T, E] float32).
    """
    normed, total, logits = _kernels(x).add_norm_router(x, residual, norm_weight, router_weight, eps)
    return normed, total, logits


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """``x`` [T, K] times ``weight`` [N, K] transposed: [T, N]. Few rows stream the weight, many use the library."""
    out: Tensor = _kernels(x).linear(x, weight)
    return out


def silu_mul(x: Tensor) -> Tensor:
    """``silu(gate) * up`` [..., I] for ``x`` [..., 2I] holding the gate half, then the up half."""
    out: Tensor = _kernels(x).silu_mul(x)
    return out


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
    """Norm each query and key head, rotate them, and write keys and values to the paged cache.

    Args:
        qkv: [T, (Hq + 2 Hkv) D], the query heads, then the key heads, then the value heads.
        q_weight, k_weight: [D], or both None for a model without per-head norms.
        cos_sin: [max_position, D] float32, D/2 cosines then D/2 sines; pairs are (i, i + D/2).
        positions, slot_mapping: [T] integers.
        k_cache, v_cache: [blocks, block_size, Hkv, D], written in place.
        eps: of the norms.

    Returns:
        The queries [T, Hq, D].
    """
    out: Tensor = _kernels(qkv).qk_norm_rope_cache(
        qkv, q_weight, k_weight, cos_sin, positions, k_cache, v_cache, slot_mapping, eps
    )
    return out


def decode_attention(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, context_lens: Tensor, scale: float
) -> Tensor:
    """Attention of one query a sequence, ``q`` [B, Hq, D], over the first ``context_lens`` [B] int32 cached tokens.

    A sequence of context 0 is padding and gives zeros. Returns [B, Hq, D].
    """
    out: Tensor = _kernels(q).decode_attention(q, k_cache, v_cache, block_table, context_lens, scale)
    return out


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
    """``qk_norm_rope_cache`` and ``decode_attention`` of what it gives, for one new token a sequence.

    The new token is the last of each context, so ``slot_mapping[b]`` must be its slot in the table of b; a row of
    context 0 is padding, has a negative slot and gives zeros. Returns [B, Hq, D].
    """
    out: Tensor = _kernels(qkv).rope_decode_attention(
        qkv,
        q_weight,
        k_weight,
        cos_sin,
        positions,
        k_cache,
        v_cache,
        slot_mapping,
        block_table,
        context_lens,
        scale,
        eps,
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
    """Causal attention of chunks of prompts, ``q`` [T, Hq, D], over the paged cache.

    Sequence b owns the queries ``query_start[b]`` to ``query_start[b + 1]`` ([B + 1] int32): the last tokens of its
    context of ``context_lens[b]`` tokens, already in the cache. Queries of no sequence give zeros. Returns [T, Hq, D].
    """
    out: Tensor = _kernels(q).prefill_attention(q, k_cache, v_cache, block_table, context_lens, query_start, scale)
    return out


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
    """Norm the latent, rotate the shared key and the queries' rope part, and write latent and key to the paged cache.

    Args:
        q_rope: [T, heads, R].
        compressed: [T, L + R], the latent and the shared key as projected.
        kv_weight: [L], the latent's norm.
        cos_sin: [max_position, R] float32, R/2 cosines then R/2 sines.
        positions, slot_mapping: [T] integers.
        latent_cache: [blocks, block_size, L + R], written in place.
        eps: of the norm.
        interleaved: whether pairs are (2i, 2i + 1) on the way in (DeepSeek's checkpoints); out they are (i, i + R/2).

    Returns:
        The rotated ``q_rope`` [T, heads, R].
    """
    out: Tensor = _kernels(compressed).mla_norm_rope_cache(
        q_rope, compressed, kv_weight, cos_sin, positions, latent_cache, slot_mapping, eps, interleaved
    )
    return out


def mla_decode_attention(
    q_latent: Tensor, q_rope: Tensor, latent_cache: Tensor, block_table: Tensor, context_lens: Tensor, scale: float
) -> Tensor:
    """Latent attention of one query a sequence: ``q_latent`` [B, heads, L] (absorbed), ``q_rope`` [B, heads, R].

    ``latent_cache`` is [blocks, block_size, L + R]. Returns [B, heads, L], to be carried out by the value projection.
    """
    out: Tensor = _kernels(q_latent).mla_decode_attention(
        q_latent, q_rope, latent_cache, block_table, context_lens, scale
    )
    return out


def mla_prefill_attention(
    q_latent: Tensor,
    q_rope: Tensor,
    latent_cache: Tensor,
    block_table: Tensor,
    context_lens: Tensor,
    query_start: Tensor,
    scale: float,
) -> Tensor:
    """``mla_decode_attention`` for chunks of prompts, ``query_start`` as in ``prefill_attention``: [T, heads, L]."""
    out: Tensor = _kernels(q_latent).mla_prefill_attention(
        q_latent, q_rope, latent_cache, block_table, context_lens, query_start, scale
    )
    return out


def route_softmax_topk(logits: Tensor, k: int, renormalise: bool) -> tuple[Tensor, Tensor]:
    """The ``k`` likeliest experts of ``logits`` [T, E]: (softmax weights [T, k] float32, ids [T, k] int32).

    With ``renormalise`` the k weights sum to 1. Of equal logits the lower expert wins.
    """
    weights, ids = _kernels(logits).route_softmax_topk(logits, k, renormalise)
    return weights, ids


def route_grouped_sigmoid_topk(
    logits: Tensor, bias: Tensor, k: int, groups: int, top_groups: int, scaling: float, renormalise: bool
) -> tuple[Tensor, Tensor]:
    """DeepSeek-V3's router: ``k`` experts by sigmoid plus ``bias`` [E], out of the best ``top_groups`` groups.

    A group scores the sum of its two best. The weights are the sigmoids without the bias, renormalised if asked, times
    ``scaling``. Returns (weights [T, k] float32, ids [T, k] int32).
    """
    weights, ids = _kernels(logits).route_grouped_sigmoid_topk(
        logits, bias, k, groups, top_groups, scaling, renormalise
    )
    return weights, ids


def fused_moe(
    x: Tensor,
    weights: Tensor,
    ids: Tensor,
    w_gate_up: Tensor,
    w_down: Tensor,
    expert_offset: int,
    local_experts: int,
) -> Tensor:
    """The weighted sum over each token's experts of ``down(silu(gate(x)) * up(x))``.

    Args:
        x: [T, H].
        weights: [T, k] float32, of the chosen experts.
        ids: [T, k] int32, global expert numbers.
        w_gate_up: [local_experts, 2I, H], the gate rows, then the up rows.
        w_down: [local_experts, H, I].
        expert_offset: the global number of the first local expert.
        local_experts: how many experts are here; the others add nothing.

    Returns:
        [T, H], in the type of ``x``.
    """
    out: Tensor = _kernels(x).fused_moe(x, weights, ids, w_gate_up, w_down, expert_offset, local_experts)
    return out


def moe_parts(x: Tensor, ids: Tensor, w_gate_up: Tensor, w_down: Tensor, expert_offset: int) -> Tensor:
    """``fused_moe`` without its weighted sum: each chosen expert's output [T, k, H], for ``combine_add_rms_norm``.

    What belongs to other ranks' experts holds arbitrary values, which the sum leaves out.
    """
    out: Tensor = _kernels(x).moe_parts(x, ids, w_gate_up, w_down, expert_offset)
    return out


def sample(logits: Tensor, temperature: Tensor, top_p: Tensor, seed: Tensor, position: Tensor) -> Tensor:
    """The next token of each row of ``logits`` [B, V], as int64 [B].

    Temperature 0 takes the exact argmax (the lower token of equals). Otherwise a token of the nucleus ``top_p`` is
    drawn, and the draw depends only on the row's logits and its (seed, position), not on the batch around it.
    ``temperature`` and ``top_p`` are [B] float32, ``seed`` and ``position`` [B] integers.
    """
    out: Tensor = _kernels(logits).sample(logits, temperature, top_p, seed, position)
    return out
