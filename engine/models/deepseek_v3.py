"""The DeepSeek-V3 family (Kimi K2 too): latent attention with absorbed projections, group-limited sigmoid routing."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from engine.checkpoint.model_config import DeepseekV3Config
from engine.kernels import (
    add_norm_router,
    add_rms_norm,
    linear,
    mla_decode_attention,
    mla_norm_rope_cache,
    mla_prefill_attention,
    rms_norm,
    route_grouped_sigmoid_topk,
    silu_mul,
)
from engine.models.batch import Batch
from engine.models.decoder import Decoder, join_parts
from engine.models.rope import rope_table, softmax_scale


class DeepseekV3(Decoder):
    """See Decoder. Each layer's cache is (latents,), [blocks, block_size, kv_lora + rope_dim], whole on every rank."""

    config: DeepseekV3Config

    def prepare(self, positions: int, device: torch.device) -> None:
        """Build the rotary table for contexts of up to `positions` tokens."""
        config = self.config
        self.rope = rope_table(config.rope_dim, config.rope_theta, positions, config.yarn, device)
        self.scale = softmax_scale(config.nope_dim + config.rope_dim, config.yarn)

    def attend(self, layer: int, weights: Mapping[str, Tensor], normed: Tensor, batch: Batch) -> Tensor:
        """See Decoder.attend. Queries are carried into the latent space, so keys and values are never expanded."""
        config = self.config
        (latents,) = self.caches[layer]
        down = linear(normed, weights["down"])
        query = rms_norm(down[:, : config.q_lora], weights["q_norm"], config.norm_eps) if config.q_lora else normed
        q = _by_head(linear(query, weights["q_up"]), 1, config.nope_dim + config.rope_dim)
        q_rope = mla_norm_rope_cache(
            q[..., config.nope_dim :],
            down[:, config.q_lora :],
            weights["kv_norm"],
            self.rope,
            batch.positions,
            latents,
            batch.slots,
            config.norm_eps,
            config.rope_interleaved,
        )
        up = _by_head(weights["kv_up"], 0, config.nope_dim + config.value_dim)
        keys_up, values_up = up[:, : config.nope_dim], up[:, config.nope_dim :]
        q_latent = torch.bmm(q[..., : config.nope_dim].transpose(0, 1), keys_up).transpose(0, 1)
        parts = []
        if batch.decode is not None:
            tables = batch.decode.block_table, batch.decode.context_lens
            n = batch.decodes
            parts.append(mla_decode_attention(q_latent[:n], q_rope[:n], latents, *tables, self.scale))
        if batch.prefill is not None:
            n = batch.decodes
            parts.append(mla_prefill_attention(q_latent[n:], q_rope[n:], latents, *batch.prefill, self.scale))
        values = torch.bmm(join_parts(parts).transpose(0, 1), values_up.transpose(1, 2))
        return linear(values.transpose(0, 1).flatten(1), weights["out"])

    def feed_forward(
        self, layer: int, weights: Mapping[str, Tensor], mixed: Tensor, residual: Tensor, following: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See Decoder.feed_forward."""
        config, eps, post_norm = self.config, self.config.norm_eps, weights["post_norm"]
        if layer < config.dense_layers:
            normed, residual = add_rms_norm(mixed, residual, post_norm, eps)
            dense = self.reduce(_feed_forward(normed, weights["dense.gate_up"], weights["dense.down"]))
            return add_rms_norm(dense, residual, following, eps)
        normed, residual, scores = add_norm_router(mixed, residual, post_norm, weights["router"], eps)
        shares, ids = route_grouped_sigmoid_topk(
            scores,
            weights["router_bias"],
            config.experts_per_token,
            config.groups,
            config.top_groups,
            config.routed_scaling,
            config.renormalise,
        )
        self.keep_routing(layer, ids)
        shared = None
        if config.shared_experts:
            shared = _feed_forward(normed, weights["shared.gate_up"], weights["shared.down"])
        return self.experts(weights, normed, shares, ids, residual, following, shared)


def _feed_forward(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    return linear(silu_mul(linear(x, gate_up)), down)


def _by_head(x: Tensor, axis: int, dim: int) -> Tensor:
    """Split an axis of heads * dim into (heads, dim)."""
    return x.view(*x.shape[:axis], -1, dim, *x.shape[axis + 1 :])
