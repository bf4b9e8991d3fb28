"""What an emulated engine consists of: hardware, model, both ways to shard it, and how much cache that leaves."""

from __future__ import annotations

import msgspec

from engine.config import ConfigError, EngineConfig
from engine.emulated.hardware import Hardware, load_hardware
from engine.emulated.model_profile import ModelProfile, load_model
from engine.emulated.roofline import Roofline, Split
from sessions.knobs import Parallelism

MAX_KV_BLOCKS = 1 << 20


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """pp, ep: ranks of either sharding, on the same GPUs."""

    hardware: Hardware
    model: ModelProfile
    pp: int
    ep: int
    split: Split = "even"

    def roofline(self, parallelism: Parallelism) -> Roofline:
        """Stage times under one sharding. Raise ConfigError when it does not suit the hardware or the model."""
        return Roofline(self.hardware, self.model, parallelism, self.pp if parallelism == "pp" else self.ep, self.split)

    def switch_s(self) -> float:
        """Seconds to move the weights from one sharding to the other, every link at work: each GPU ends with 1/n of the
        weights and has 1/n of those already, so (1 - 1/n) / n of all bytes reach it."""
        n = max(self.pp, self.ep)
        return (1.0 - 1.0 / n) / n * self.model.total_bytes / self.hardware.link_bytes_per_s


def cluster_of(config: EngineConfig) -> Cluster:
    """The cluster of an engine's configuration; `emulate` must be set. A sharding that was not asked for takes the
    ranks of the other. Raise ConfigError."""
    if config.emulate is None:
        raise ConfigError("emulate: no hardware profile given")
    hardware = load_hardware(config.emulate)
    pp = config.pp if config.pp > 1 else config.ep
    ep = config.ep if config.ep > 1 else config.pp
    return Cluster(hardware=hardware, model=load_model(config.model), pp=pp, ep=ep)


def kv_blocks(roofline: Roofline, config: EngineConfig) -> int:
    """Cache blocks that fit beside the weights on the fullest rank, or what the configuration says; 0 when the weights
    alone do not fit."""
    if config.kv_blocks:
        return config.kv_blocks
    budget = roofline.hardware.memory_bytes * config.memory_fraction
    blocks = min(
        (budget - roofline.weights_bytes(stage)) / (roofline.cache_bytes(stage) * config.block_size)
        for stage in range(roofline.stages)
    )
    return max(0, min(MAX_KV_BLOCKS, int(blocks)))


def shortage_bytes(roofline: Roofline, config: EngineConfig) -> float:
    """Bytes that the fullest GPU lacks for the weights alone; 0 when they fit."""
    budget = roofline.hardware.memory_bytes * config.memory_fraction
    return max(0.0, max(roofline.weights_bytes(stage) for stage in range(roofline.stages)) - budget)
