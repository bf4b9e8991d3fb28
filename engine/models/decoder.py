"""The skeleton of both families: residual stream, norms, layers of a stage, the head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from engine.checkpoint.model_config import ModelConfig
from engine.kernels import add_rms_norm, combine_add_rms_norm, fused_moe, linear, moe_parts, rms_norm
from engine.models.batch import Batch
from engine.parallel.layout import Layout

Reduce = Callable[[Tensor], Tensor]


class Decoder(ABC):
    """The layers that one rank runs, on weights named as in engine/checkpoint/parameters.py.

    Nothing here allocates by data or waits for the device, so a decode step can be captured in a CUDA graph.
    """

    def __init__(
        self,
        config: ModelConfig,
        layout: Layout,
        rank: int,
        weights: Mapping[str, Tensor],
        caches: Mapping[int, tuple[Tensor, ...]],
        reduce: Reduce,
        gather: Reduce,
    ) -> None:
        """`reduce` sums a tensor over the shards, `gather` joins their last dimensions; both identity for one shard.

        `caches` holds the paged cache of each layer of this rank.
        """
        self.config = config
        self.layers = list(layout.layers_of(rank))
        self.shard, self.shards = layout.shard_of(rank), layout.shards
        self.weights = weights
        self.caches = caches
        self.reduce, self.gather = reduce, gather
        self.routed: dict[int, Tensor] | None = None
        """Where each layer's chosen experts [T, k] are kept after a pass; None: not kept."""
        self.last = "final_norm" in weights
        self._layer_weights = {layer: _of_layer(weights, layer) for layer in self.layers}
        norms = [self._layer_weights[layer]["input_norm"] for layer in self.layers[1:]]
        # Before a stage that is not the last the norm is not used: any weight of the right width will do.
        self._following_norms = [
            *norms,
            weights["final_norm"] if self.last else self._layer_weights[self.layers[-1]]["post_norm"],
        ]

    def embed(self, tokens: Tensor) -> Tensor:
        """[T] token ids to [T, hidden]."""
        return functional.embedding(tokens, self.weights["embed"])

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """The residual stream [T, hidden] through this rank's layers; writes the cache. The last stage gives the normed
        stream, ready for `logits`."""
        residual = hidden
        normed = rms_norm(hidden, self._layer_weights[self.layers[0]]["input_norm"], self.config.norm_eps)
        for layer, following in zip(self.layers, self._following_norms, strict=True):
            weights = self._layer_weights[layer]
            mixed = self.reduce(self.attend(layer, weights, normed, batch))
            normed, residual = self.feed_forward(layer, weights, mixed, residual, following)
        return normed if self.last else residual

    def logits(self, normed: Tensor) -> Tensor:
        """What `forward` gives on the last stage, [B, hidden], to [B, vocabulary]."""
        return self.gather(linear(normed, self.weights["lm_head"]))

    @property
    def expert_range(self) -> tuple[int, int]:
        """(number of the first local expert, how many are local)."""
        local = self.config.experts // self.shards
        return self.shard * local, local

    @abstractmethod
    def attend(self, layer: int, weights: Mapping[str, Tensor], normed: Tensor, batch: Batch) -> Tensor:
        """Attention's output [T, hidden], this shard's part of the sum."""

    @abstractmethod
    def feed_forward(
        self, layer: int, weights: Mapping[str, Tensor], mixed: Tensor, residual: Tensor, following: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attention's output into the residual stream, then the experts' (or dense layer's) too.

        Returns (the stream normed by `following`, the stream), both [T, hidden].
        """

    def experts(
        self,
        weights: Mapping[str, Tensor],
        normed: Tensor,
        shares: Tensor,
        ids: Tensor,
        residual: Tensor,
        following: Tensor,
        shared: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The routed experts' weighted sum (and `shared`) added to the stream: (normed by `following`, the stream)."""
        eps, local = self.config.norm_eps, self.expert_range
        if self.shards == 1:
            parts = moe_parts(normed, ids, weights["gate_up"], weights["down_experts"], 0)
            stream = residual if shared is None else residual + shared
            return combine_add_rms_norm(parts, shares, ids, stream, following, eps, *local)
        routed = fused_moe(normed, shares, ids, weights["gate_up"], weights["down_experts"], *local)
        return add_rms_norm(self.reduce(routed if shared is None else routed + shared), residual, following, eps)

    def keep_routing(self, layer: int, ids: Tensor) -> None:
        """Keep a layer's chosen experts when somebody asked for them."""
        if self.routed is not None:
            self.routed[layer] = ids


def _of_layer(weights: Mapping[str, Tensor], layer: int) -> dict[str, Tensor]:
    prefix = f"layers.{layer}."
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}


def join_parts(parts: list[Tensor]) -> Tensor:
    """Decode tokens' and prefill tokens' results as one tensor."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)
