"""The skeleton of both families: residual stream, norms, layers of a stage, the head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from engine.checkpoint.model_config import ModelConfig
from engine.kernels import add_rms_norm, rms_norm
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
        self._layer_weights = {layer: _of_layer(weights, layer) for layer in self.layers}

    def embed(self, tokens: Tensor) -> Tensor:
        """[T] token ids to [T, hidden]."""
        return functional.embedding(tokens, self.weights["embed"])

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """The residual stream [T, hidden] through this rank's layers; writes the cache."""
        eps = self.config.norm_eps
        first = self._layer_weights[self.layers[0]]
        residual, normed = hidden, rms_norm(hidden, first["input_norm"], eps)
        for layer in self.layers:
            weights = self._layer_weights[layer]
            mixed = self.reduce(self.attend(layer, weights, normed, batch))
            normed, residual = add_rms_norm(mixed, residual, weights["post_norm"], eps)
            mixed = self.reduce(self.feed_forward(layer, weights, normed))
            following = self._layer_weights.get(layer + 1)
            if following is None:
                return residual + mixed
            normed, residual = add_rms_norm(mixed, residual, following["input_norm"], eps)
        raise AssertionError("a stage has at least one layer")

    def logits(self, hidden: Tensor) -> Tensor:
        """[B, hidden] to [B, vocabulary]."""
        normed = rms_norm(hidden, self.weights["final_norm"], self.config.norm_eps)
        return self.gather(functional.linear(normed, self.weights["lm_head"]))

    @property
    def expert_range(self) -> tuple[int, int]:
        """(number of the first local expert, how many are local)."""
        local = self.config.experts // self.shards
        return self.shard * local, local

    @abstractmethod
    def attend(self, layer: int, weights: Mapping[str, Tensor], normed: Tensor, batch: Batch) -> Tensor:
        """Attention's output [T, hidden], this shard's part of the sum."""

    @abstractmethod
    def feed_forward(self, layer: int, weights: Mapping[str, Tensor], normed: Tensor) -> Tensor:
        """The experts' (or dense) output [T, hidden], this shard's part of the sum."""

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
