"""The paged cache: how much memory a block takes on a rank, and the tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.checkpoint.model_config import DeepseekV3Config, ModelConfig, Qwen3MoeConfig
from engine.parallel.layout import Layout


def entry_shapes(config: ModelConfig, layout: Layout) -> list[tuple[int, ...]]:
    """What one token leaves in one layer's cache on one rank: the shapes of its entries."""
    if isinstance(config, Qwen3MoeConfig):
        heads = max(1, config.kv_heads // layout.shards)
        return [(heads, config.head_dim)] * 2
    assert isinstance(config, DeepseekV3Config)
    return [(config.kv_lora + config.rope_dim,)]


def block_bytes(config: ModelConfig, layout: Layout, rank: int, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one cache block over all layers of a rank."""
    entries = sum(math.prod(shape) for shape in entry_shapes(config, layout))
    return len(layout.layers_of(rank)) * block_size * entries * dtype.itemsize


def allocate_cache(
    config: ModelConfig,
    layout: Layout,
    rank: int,
    blocks: int,
    block_size: int,
    dtype: torch.dtype,
    device: torch.device,
) -> dict[int, tuple[Tensor, ...]]:
    """The cache of each layer of a rank, zeroed."""
    return {
        layer: tuple(
            torch.zeros(blocks, block_size, *shape, dtype=dtype, device=device)
            for shape in entry_shapes(config, layout)
        )
        for layer in layout.layers_of(rank)
    }
