"""Stage times by the roofline: what a micro-batch must read, compute, launch and send.

Source of the formulas: Pipeline theory, docs/theory.md.

    gpu_s    = max(bytes / (efficiency x bandwidth), flops / (efficiency x rate)) + kernels x kernel_us + all-reduces
    stage_s  = max(gpu_s, launches x launch_us)       one launch a kernel without CUDA graphs, one in all with them
                                                      (decode only: prefill is never replayed)
    bytes    = sum over layers of [attention + (dense MLP | router + shared + D(tokens) experts)] + head + cache read

Under expert or tensor parallelism one stage holds all layers over n ranks: attention, dense parts, shared experts and
head are split (the parts that cannot be are replicated), two all-reduces a layer; a rank's experts are D/n on average,
and each layer waits for the rank that has most.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from engine.config import ConfigError
from engine.emulated.hardware import Hardware
from engine.emulated.layers import balanced_split, even_split
from engine.emulated.model_profile import ModelProfile
from engine.emulated.routing import busiest_rank_experts, distinct_experts, rank_experts

Sharding = Literal["pp", "ep", "tp"]
Split = Literal["even", "balanced"] | tuple[int, ...]

SPLIT_TOKENS = 4
"""Tokens of the micro-batch whose costs a balanced split evens out."""


class Work(NamedTuple):
    """One micro-batch: decode requests, prefill tokens, cached positions read, (token, position) pairs attended, tokens
    sampled."""

    decode: int
    prefill: int
    cached: int
    attended: int
    sampled: int


def decode_work(requests: int, context: int = 0) -> Work:
    """A micro-batch of `requests` decode steps, each of `context` cached tokens."""
    return Work(requests, 0, requests * context, requests * context, requests)


class StageTime(NamedTuple):
    """Seconds. `stage` is how long the micro-batch holds the stage; `own` is each rank's part of `gpu` that is its own
    work, not waiting for other ranks; `launch` is host time; `compute_share` tells how near to the compute roof;
    `replayed` that a CUDA graph did it."""

    stage: float
    gpu: float
    own: tuple[float, ...]
    launch: float
    compute_share: float
    replayed: bool


class Roofline:
    """Stage times of one model on one cluster, sharded one way. Immutable."""

    def __init__(
        self, hardware: Hardware, model: ModelProfile, sharding: Sharding, ranks: int, split: Split = "even"
    ) -> None:
        """Raise ConfigError when `ranks` does not suit the hardware, the model or an explicit `split`."""
        if not 1 <= ranks <= hardware.count:
            raise ConfigError(f"{sharding}: {ranks} ranks on {hardware.label}: use 1 to {hardware.count}")
        self.hardware = hardware
        self.model = model
        self.sharding = sharding
        self.ranks = ranks
        self.stages = ranks if sharding == "pp" else 1
        self.layers = self._split(split)

    @property
    def ranks_per_stage(self) -> int:
        return self.ranks // self.stages

    def bounds(self, stage: int) -> tuple[int, int]:
        """Layers [first, last) of a stage."""
        first = sum(self.layers[:stage])
        return first, first + self.layers[stage]

    def stage_times(self, work: Work, graphs: bool) -> tuple[StageTime, ...]:
        """Times of one micro-batch on every stage, in seconds."""
        return tuple(self._time(stage, work, graphs) for stage in range(self.stages))

    def hop_s(self, sender: int, receiver: int, tokens: int) -> float:
        """Seconds to hand the activations of `tokens` tokens from one stage to another; 0 where there is one stage."""
        if self.stages == 1:
            return 0.0
        return self.hardware.hop_s(sender, receiver, tokens * self.model.hidden * self.model.activation_bytes)

    def feedback_s(self, sampled: int) -> float:
        """Seconds for sampled tokens from the last stage to the first, for a step submitted ahead of them."""
        return 0.0 if self.stages == 1 else self.hardware.hop_s(self.stages - 1, 0, 4.0 * sampled)

    def weights_bytes(self, stage: int) -> float:
        """Weights that the fullest rank of a stage holds: layers, embedding on the first stage, head on the last."""
        model, n = self.model, self.ranks_per_stage
        first, last = self.bounds(stage)
        dense = max(0, min(last, model.dense_layers) - first)
        moe = last - first - dense
        ends = (stage == 0) + (stage == self.stages - 1)
        experts = -(-model.experts // n) if self.sharding == "ep" else model.experts / n
        return (
            (last - first) * self._attention_bytes()
            + dense * model.dense_bytes / n
            + moe * (model.router_bytes + model.shared_bytes / n + experts * model.expert_bytes)
            + ends * model.head_bytes / n
        )

    def cache_bytes(self, stage: int) -> float:
        """Cache of one token on one rank of a stage."""
        return self.layers[stage] * self.model.kv_bytes / min(self.ranks_per_stage, self.model.kv_ranks)

    def _split(self, split: Split) -> tuple[int, ...]:
        layers, stages = self.model.layers, self.stages
        if isinstance(split, tuple):
            if len(split) != stages or sum(split) != layers or min(split) < 1:
                raise ConfigError(f"layer split {split}: need {stages} counts of at least 1 that sum to {layers}")
            return split
        if split == "even" or stages == 1:
            return even_split(layers, stages)
        peak = self.hardware.memory_bytes_per_s * self.hardware.memory_efficiency
        distinct = distinct_experts(self.model.experts, self.model.top_k, SPLIT_TOKENS, self.model.routing_skew)
        costs = [
            self._layer_bytes(layer >= self.model.dense_layers, distinct) / peak + self._kernel_s(1)
            for layer in range(layers)
        ]
        return balanced_split(costs, self.model.head_bytes / peak, stages)

    def _time(self, stage: int, work: Work, graphs: bool) -> StageTime:
        hardware, model, n = self.hardware, self.model, self.ranks_per_stage
        first, last = self.bounds(stage)
        layers = last - first
        moe = layers - max(0, min(last, model.dense_layers) - first)
        tokens = work.decode + work.prefill
        rest = self._rest_bytes(stage, moe, work)
        own_experts = self._own_experts(tokens)
        slowest = self._slowest_experts(tokens)
        flops_s = self._flops(stage, moe, work) / n / (hardware.flops_per_s * hardware.flops_efficiency)
        peak = hardware.memory_bytes_per_s * hardware.memory_efficiency
        kernels = layers * model.kernels_per_layer
        fixed = kernels * hardware.kernel_us * 1e-6
        message = tokens * model.hidden * model.activation_bytes
        reduces = 2 * layers * hardware.allreduce_s(n, message) if n > 1 else 0.0
        bytes_s = (rest + moe * slowest * model.expert_bytes) / peak
        gpu = max(bytes_s, flops_s) + fixed + reduces
        own = tuple(max((rest + moe * e * model.expert_bytes) / peak, flops_s) + fixed for e in own_experts)
        replayed = graphs and work.prefill == 0
        launch = (1 if replayed else kernels) * hardware.launch_us * 1e-6
        compute_share = min(1.0, flops_s / bytes_s)
        return StageTime(max(gpu, launch), gpu, own, launch, compute_share, replayed)

    def _rest_bytes(self, stage: int, moe: int, work: Work) -> float:
        """Bytes that a rank reads of everything but experts."""
        model, n = self.model, self.ranks_per_stage
        layers = self.layers[stage]
        total = moe * (model.router_bytes + model.shared_bytes / n) + (layers - moe) * model.dense_bytes / n
        total += layers * self._attention_bytes() + work.cached * self.cache_bytes(stage)
        if stage == self.stages - 1 and work.sampled:
            total += model.head_bytes / n
        return total

    def _layer_bytes(self, moe: bool, distinct: float) -> float:
        model = self.model
        mlp = model.router_bytes + model.shared_bytes + distinct * model.expert_bytes if moe else model.dense_bytes
        return model.attention_bytes + mlp

    def _attention_bytes(self) -> float:
        whole = self.model.attention_replicated_bytes
        return whole + (self.model.attention_bytes - whole) / self.ranks_per_stage

    def _kernel_s(self, layers: int) -> float:
        return layers * self.model.kernels_per_layer * self.hardware.kernel_us * 1e-6

    def _own_experts(self, tokens: int) -> tuple[float, ...]:
        model, n = self.model, self.ranks_per_stage
        if n > 1 and self.sharding == "ep":
            return rank_experts(model.experts, model.top_k, tokens, model.routing_skew, n)
        return (distinct_experts(model.experts, model.top_k, tokens, model.routing_skew) / n,) * n

    def _slowest_experts(self, tokens: int) -> float:
        model, n = self.model, self.ranks_per_stage
        if n > 1 and self.sharding == "ep" and model.experts:
            return busiest_rank_experts(model.experts, model.top_k, tokens, model.routing_skew, n)
        return distinct_experts(model.experts, model.top_k, tokens, model.routing_skew) / n

    def _flops(self, stage: int, moe: int, work: Work) -> float:
        """2 FLOPs a parameter a token, the head for sampled tokens only, attention by the positions attended."""
        model, layers = self.model, self.layers[stage]
        active = model.shared_parameters + model.top_k * model.expert_parameters + model.experts * model.hidden
        per_token = layers * model.attention_parameters + (layers - moe) * model.dense_parameters + moe * active
        flops = 2.0 * (work.decode + work.prefill) * per_token + layers * work.attended * model.score_flops
        if stage == self.stages - 1:
            flops += 2.0 * work.sampled * model.vocab * model.hidden
        return flops
