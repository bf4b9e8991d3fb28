"""What a rank holds of the model: its layout, weights, cache and the decoder over them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from engine.checkpoint.model_config import ModelConfig
from engine.checkpoint.parameters import Parameter, parameters_of
from engine.checkpoint.safetensors_reader import Checkpoint
from engine.config import EngineConfig
from engine.models.cache import allocate_cache
from engine.models.decoder import Decoder
from engine.models.dummy import dummy_parameter
from engine.models.families import FAMILIES
from engine.models.loading import load_parameter
from engine.parallel.layout import Layout, held_ranges, layout_of
from engine.parallel.reshard import ReshardReport, reshard
from engine.presets import has_made_up_weights, model_config
from engine.worker.groups import Groups
from engine.worker.memory import (
    allowed_bytes,
    cache_capacity,
    check_weights_fit,
    largest_unit_bytes,
    parameter_type,
    weight_bytes,
)
from engine.worker_messages import Room
from sessions.knobs import Parallelism

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class ModelState:
    """Weights, cache and decoder of one rank; changed only between micro-batches."""

    def __init__(self, engine: EngineConfig, rank: int, local_world: int, device: torch.device, groups: Groups) -> None:
        self.engine, self.rank, self.device, self.groups = engine, rank, device, groups
        self.config: ModelConfig = model_config(engine.model)
        self.dtype = TYPES[self.config.dtype if engine.dtype == "auto" else engine.dtype]
        self.layout = self.layout_for(engine.knobs.parallelism)
        self.weights: dict[str, Tensor] = {}
        self.decoder: Decoder | None = None
        self._local_world = local_world
        self._caches: dict[int, tuple[Tensor, ...]] = {}

    def layout_for(self, mode: Parallelism) -> Layout:
        """The layout of a mode. Raise ConfigError where the model does not divide."""
        return layout_of(self.config, self.engine, mode)

    def load(self) -> None:
        """Read or make this rank's weights. Raise OutOfMemory before reading, CheckpointError while."""
        check_weights_fit(
            weight_bytes(self.config, self.layout, self.rank, self.dtype), self._allowed_bytes(), self.rank
        )
        checkpoint = None if has_made_up_weights(self.engine) else Checkpoint(Path(self.engine.model))
        for parameter in parameters_of(self.config):
            ranges = held_ranges(parameter, self.layout, self.rank)
            if not ranges:
                continue
            dtype = self._type_of(parameter)
            if checkpoint is None:
                made = dummy_parameter(parameter, ranges, dtype, self.device, self.engine.seed)
            else:
                made = load_parameter(checkpoint, self.config, parameter, ranges, dtype, self.device)
            self.weights[parameter.name] = made

    def cache_blocks(self, layout: Layout | None = None) -> int:
        """Cache blocks that fit beside the weights of a layout (this one when None)."""
        layout = layout or self.layout
        allowed = self._allowed_bytes()
        return cache_capacity(self.config, self.engine, layout, self.rank, self.dtype, self.device, allowed)

    def open_cache(self, blocks: int, max_context: int) -> None:
        """Allocate the cache and build the decoder over it; needed before the first micro-batch and after a switch."""
        self.decoder = None
        self._caches = allocate_cache(
            self.config, self.layout, self.rank, blocks, self.engine.block_size, self.dtype, self.device
        )
        if self.layout.stage_of(self.rank) is None:
            return
        sharded = self.layout.shards > 1
        decoder = FAMILIES[self.config.family](
            self.config,
            self.layout,
            self.rank,
            self.weights,
            self._caches,
            self.groups.sum_shards if sharded else _identity,
            self.groups.join_shards if sharded else _identity,
        )
        decoder.prepare(max_context, self.device)
        self.decoder = decoder

    def room_for(self, mode: Parallelism) -> Room:
        """What a switch to `mode` would need at its peak. Raise ConfigError where the model does not divide."""
        after = self.layout_for(mode)
        fuller = max(weight_bytes(self.config, layout, self.rank, self.dtype) for layout in (self.layout, after))
        needed = fuller + largest_unit_bytes(self.config, self.dtype)
        return Room(needed_bytes=needed, allowed_bytes=self._allowed_bytes(), cache_blocks=self.cache_blocks(after))

    def switch(self, mode: Parallelism) -> ReshardReport:
        """Drop the cache and move the weights to another layout; `open_cache` follows."""
        self.decoder, self._caches = None, {}
        self._release()
        after = self.layout_for(mode)
        report = reshard(
            parameters_of(self.config),
            self.layout,
            after,
            self.rank,
            self.weights,
            self.device,
            self._type_of,
            self.groups,
            self._release,
        )
        self.layout = after
        return report

    def fingerprint(self) -> dict[str, str]:
        """A hash of each slice held."""
        return {name: fingerprint(tensor) for name, tensor in sorted(self.weights.items())}

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights held now."""
        return sum(tensor.numel() * tensor.itemsize for tensor in self.weights.values())

    @property
    def layer_bytes(self) -> int:
        """Bytes of the largest unit that moves at once."""
        return largest_unit_bytes(self.config, self.dtype)

    def _type_of(self, parameter: Parameter) -> torch.dtype:
        return parameter_type(parameter, self.dtype)

    def _allowed_bytes(self) -> int:
        cached = sum(t.numel() * t.itemsize for layer in self._caches.values() for t in layer)
        return allowed_bytes(self.engine, self.device, self._local_world, self.weight_bytes + cached)

    def _release(self) -> None:
        # Freed slices have other sizes than the new ones: give the memory back so that it can be cut anew.
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def _identity(tensor: Tensor) -> Tensor:
    return tensor


def fingerprint(tensor: Tensor) -> str:
    """A hash of a tensor's very bits."""
    raw = tensor.detach().contiguous().cpu().view(torch.uint8).numpy()
    return hashlib.blake2b(raw.tobytes(), digest_size=16).hexdigest()
