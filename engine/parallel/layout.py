"""A layout says which entries of each parameter a rank holds, under pipeline stages (pp) or split experts (ep)."""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from engine.checkpoint.model_config import DeepseekV3Config, ModelConfig, Qwen3MoeConfig
from engine.checkpoint.parameters import Parameter
from engine.config import ConfigError, EngineConfig
from engine.parallel.split import stage_bounds
from sessions.knobs import Parallelism


class Range(msgspec.Struct, frozen=True, order=True):
    """Entries [start, stop) of a parameter's split axis."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How a model lies on ranks 0 to `ranks` - 1; further ranks of the world hold nothing.

    bounds: the first layer of each stage, then the number of layers; under ep one stage holds all.
    """

    mode: Parallelism
    ranks: int
    layers: int
    bounds: list[int]

    @property
    def stages(self) -> int:
        """Stages a micro-batch passes."""
        return len(self.bounds) - 1

    @property
    def shards(self) -> int:
        """Ranks among which a split axis is shared."""
        return self.ranks if self.mode == "ep" else 1

    def stage_of(self, rank: int) -> int | None:
        """The rank's stage; None when it holds nothing."""
        if rank >= self.ranks:
            return None
        return 0 if self.mode == "ep" else rank

    def shard_of(self, rank: int) -> int:
        """The rank's place among the shards."""
        return rank if self.mode == "ep" else 0

    def layers_of(self, rank: int) -> range:
        """Layers that the rank runs."""
        stage = self.stage_of(rank)
        return range(0) if stage is None else range(self.bounds[stage], self.bounds[stage + 1])

    def holds(self, rank: int, unit: int) -> bool:
        """Whether the rank has (a slice of) this unit: embedding, layer or head."""
        stage = self.stage_of(rank)
        if stage is None:
            return False
        if self.mode == "ep":
            return True
        last = self.layers + 1
        owner = 0 if unit == 0 else self.stages - 1 if unit == last else bisect_right(self.bounds, unit - 1) - 1
        return owner == stage


def layout_of(model: ModelConfig, engine: EngineConfig, mode: Parallelism) -> Layout:
    """The engine's layout of `model` in a mode. Raise ConfigError where it has none."""
    return pp_layout(model, engine.pp) if mode == "pp" else ep_layout(model, engine.ep)


def pp_layout(config: ModelConfig, stages: int) -> Layout:
    """Contiguous layers a stage. Raise ConfigError when there are more stages than layers."""
    if stages > config.layers:
        raise ConfigError(f"pp {stages} is more than the model's {config.layers} layers; lower --pp")
    return Layout(mode="pp", ranks=stages, layers=config.layers, bounds=stage_bounds(config, stages))


def ep_layout(config: ModelConfig, ranks: int) -> Layout:
    """Attention by heads, experts by number, over `ranks`. Raise ConfigError where these do not divide."""
    counts = {"experts": config.experts, "attention heads": config.heads, "vocabulary": config.vocab}
    if isinstance(config, DeepseekV3Config):
        counts |= {"shared expert's inner size": config.shared_inner, "dense inner size": config.dense_inner}
    for what, count in counts.items():
        if count % ranks:
            raise ConfigError(f"ep {ranks} does not divide the model's {what} ({count}); choose another --ep")
    if isinstance(config, Qwen3MoeConfig) and config.kv_heads % ranks and ranks % config.kv_heads:
        raise ConfigError(f"ep {ranks} and {config.kv_heads} key-value heads do not divide; choose another --ep")
    return Layout(mode="ep", ranks=ranks, layers=config.layers, bounds=[0, config.layers])


def held_ranges(parameter: Parameter, layout: Layout, rank: int) -> tuple[Range, ...]:
    """What `rank` holds of a parameter, as ranges of its split axis (of axis 0 when it is not split), in order.

    Empty when it holds nothing. Fewer units than ranks are replicated: ranks 0 and 1 of 4 both hold unit 0 of 2.
    """
    if not layout.holds(rank, parameter.unit):
        return ()
    whole = parameter.shape[parameter.axis or 0]
    if parameter.axis is None or layout.shards == 1:
        return (Range(0, whole),)
    ranges, base = [], 0
    for section in parameter.sections:
        if section.count >= layout.shards:
            share = section.count // layout.shards
            first = layout.shard_of(rank) * share
        else:
            share, first = 1, layout.shard_of(rank) * section.count // layout.shards
        ranges.append(Range(base + first * section.size, base + (first + share) * section.size))
        base += section.count * section.size
    return tuple(ranges)


def local_shape(parameter: Parameter, ranges: tuple[Range, ...]) -> tuple[int, ...]:
    """Shape of a rank's slice."""
    axis = parameter.axis or 0
    return (*parameter.shape[:axis], sum(len(r) for r in ranges), *parameter.shape[axis + 1 :])
