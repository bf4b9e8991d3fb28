"""The shape of a model: what every later step (weights, cache, cost, emulation) is computed from."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.config import ConfigError

Family = Literal["qwen3_moe", "deepseek_v3"]
WeightType = Literal["float32", "bfloat16"]


class CheckpointError(ConfigError):
    """A checkpoint that cannot be used; the text is one line that names the file, field or tensor."""


class Yarn(msgspec.Struct, frozen=True, kw_only=True):
    """YaRN rope scaling (arXiv 2309.00071) with DeepSeek's two scales of attention."""

    factor: float
    original_positions: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 0.0
    mscale_all_dim: float = 0.0


class Fp8Blocks(msgspec.Struct, frozen=True):
    """DeepSeek's block-scaled fp8: `weight` in e4m3 times one `weight_scale_inv` for each block of rows x columns."""

    rows: int
    columns: int


class Int4Groups(msgspec.Struct, frozen=True):
    """compressed-tensors pack-quantized int4, symmetric: one scale for each `group` of inputs, 8 values an int32."""

    group: int


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What both families share. `dtype` is that of the checkpoint (of its dequantised weights when quantised).

    prefix: what stands before `model.` and `lm_head.` in tensor names. `dense_layers` first layers have no experts.
    """

    family: Family
    layers: int
    hidden: int
    vocab: int
    heads: int
    experts: int
    experts_per_token: int
    expert_inner: int
    norm_eps: float
    max_positions: int
    rope_theta: float
    renormalise: bool
    dtype: WeightType
    yarn: Yarn | None = None
    tied: bool = False
    eos: list[int] = []
    prefix: str = ""
    quantisation: Fp8Blocks | Int4Groups | None = None
    dense_layers: int = 0


class Qwen3MoeConfig(ModelConfig, frozen=True, kw_only=True):
    """Grouped-query attention with a norm on each query and key head; softmax routing; every layer has experts."""

    kv_heads: int
    head_dim: int


class DeepseekV3Config(ModelConfig, frozen=True, kw_only=True):
    """Multi-head latent attention; sigmoid routing limited to groups of experts, with a bias; shared experts.

    q_lora 0: queries are projected directly. `dense_inner` is the inner size of the first, dense layers.
    """

    q_lora: int
    kv_lora: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    dense_inner: int
    shared_experts: int
    groups: int
    top_groups: int
    routed_scaling: float
    rope_interleaved: bool = True

    @property
    def shared_inner(self) -> int:
        """Inner size of the shared experts, run as one."""
        return self.shared_experts * self.expert_inner
