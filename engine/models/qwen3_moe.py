"""Qwen3-MoE: grouped-query attention with norms on queries and keys, softmax top-k experts."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from engine.checkpoint.model_config import Qwen3MoeConfig
from engine.kernels import (
    add_norm_router,
    decode_attention,
    linear,
    prefill_attention,
    qk_norm_rope_cache,
    rope_decode_attention,
    route_softmax_topk,
)
from engine.models.batch import Batch
from engine.models.decoder import Decoder, join_parts
from engine.models.rope import rope_table


class Qwen3Moe(Decoder):
    """See Decoder. Each layer's cache is (keys, values), both [blocks, block_size, local kv heads, head_dim]."""

    config: Qwen3MoeConfig

    def prepare(self, positions: int, device: torch.device) -> None:
        """Build the rotary table for contexts of up to `positions` tokens."""
        self.rope = rope_table(self.config.head_dim, self.config.rope_theta, positions, None, device)

    def attend(self, layer: int, weights: Mapping[str, Tensor], normed: Tensor, batch: Batch) -> Tensor:
        """See Decoder.attend."""
        keys, values = self.caches[layer]
        scale, eps = self.config.head_dim**-0.5, self.config.norm_eps
        qkv = linear(normed, weights["qkv"])
        norms = weights["q_norm"], weights["k_norm"]
        places = self.rope, batch.positions, keys, values, batch.slots
        if batch.prefill is None:
            assert batch.decode is not None
            tables = batch.decode.block_table, batch.decode.context_lens
            mixed = rope_decode_attention(qkv, *norms, *places, *tables, scale, eps)
            return linear(mixed.flatten(1), weights["out"])
        q = qk_norm_rope_cache(qkv, *norms, *places, eps)
        parts = []
        if batch.decode is not None:
            tables = batch.decode.block_table, batch.decode.context_lens
            parts.append(decode_attention(q[: batch.decodes], keys, values, *tables, scale))
        parts.append(prefill_attention(q[batch.decodes :], keys, values, *batch.prefill, scale))
        return linear(join_parts(parts).flatten(1), weights["out"])

    def feed_forward(
        self, layer: int, weights: Mapping[str, Tensor], mixed: Tensor, residual: Tensor, following: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See Decoder.feed_forward."""
        config = self.config
        normed, residual, scores = add_norm_router(
            mixed, residual, weights["post_norm"], weights["router"], config.norm_eps
        )
        shares, ids = route_softmax_topk(scores, config.experts_per_token, config.renormalise)
        self.keep_routing(layer, ids)
        return self.experts(weights, normed, shares, ids, residual, following)
