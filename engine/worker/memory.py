"""How many bytes a rank needs and may use."""

from __future__ import annotations

import math

import psutil
import torch

from engine.checkpoint.model_config import ModelConfig
from engine.checkpoint.parameters import Parameter, parameters_of
from engine.config import EngineConfig, OutOfMemory
from engine.models.cache import block_bytes
from engine.parallel.layout import Layout, held_ranges, local_shape

GIB = 1 << 30
CPU_CACHE_TOKENS = 65536
GPU_RESERVE = GIB
"""Left for the CUDA context's growth, graphs and communication buffers."""


def parameter_type(parameter: Parameter, dtype: torch.dtype) -> torch.dtype:
    """A parameter's own type, or the model's."""
    return torch.float32 if parameter.dtype == "float32" else dtype


def weight_bytes(config: ModelConfig, layout: Layout, rank: int, dtype: torch.dtype) -> int:
    """Bytes of a rank's slices."""
    return sum(_slice_bytes(p, layout, rank, dtype) for p in parameters_of(config))


def largest_unit_bytes(config: ModelConfig, dtype: torch.dtype) -> int:
    """Bytes of the largest layer (or embedding, or head), whole."""
    units: dict[int, int] = {}
    for parameter in parameters_of(config):
        size = parameter.elements() * parameter_type(parameter, dtype).itemsize
        units[parameter.unit] = units.get(parameter.unit, 0) + size
    return max(units.values())


def _slice_bytes(parameter: Parameter, layout: Layout, rank: int, dtype: torch.dtype) -> int:
    ranges = held_ranges(parameter, layout, rank)
    return math.prod(local_shape(parameter, ranges)) * parameter_type(parameter, dtype).itemsize if ranges else 0


def allowed_bytes(engine: EngineConfig, device: torch.device, local_world: int, held: int) -> int:
    """Bytes that this rank may hold in all: `memory_limit`, else its share of what is free and what it holds now."""
    if engine.memory_limit:
        return engine.memory_limit
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        own = torch.cuda.memory_reserved(device)
        return int(free + own - (1 - engine.memory_fraction) * total) - GPU_RESERVE
    return psutil.virtual_memory().available // local_world + held


def activation_bytes(config: ModelConfig, engine: EngineConfig, dtype: torch.dtype) -> int:
    """Scratch of the largest micro-batch: hidden states, the experts' inner values, and logits of sampled rows."""
    widths = 8 * config.hidden + config.experts_per_token * (3 * config.expert_inner + config.hidden)
    sampled = min(engine.max_running, engine.token_budget)
    return (engine.token_budget * widths + sampled * config.vocab) * dtype.itemsize


def cache_capacity(
    config: ModelConfig,
    engine: EngineConfig,
    layout: Layout,
    rank: int,
    dtype: torch.dtype,
    device: torch.device,
    allowed: int,
) -> int:
    """Cache blocks that fit beside the weights; a CPU stops at CPU_CACHE_TOKENS, its share of a shared host."""
    per_block = block_bytes(config, layout, rank, engine.block_size, dtype)
    if not per_block:
        return 1 << 30
    spare = allowed - weight_bytes(config, layout, rank, dtype) - activation_bytes(config, engine, dtype)
    blocks = max(0, spare // per_block)
    return min(blocks, CPU_CACHE_TOKENS // engine.block_size) if device.type == "cpu" else blocks


def check_weights_fit(needed: int, allowed: int, rank: int) -> None:
    """Raise OutOfMemory with the numbers."""
    if needed > allowed:
        raise OutOfMemory(
            f"rank {rank} needs {needed / GIB:.2f} GiB for its weights and may use {allowed / GIB:.2f} GiB; "
            "use more ranks (--pp, --ep), a smaller model, or a larger memory_fraction"
        )
