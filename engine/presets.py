"""Shapes of known models, for dummy weights and for the emulated cluster. No torch, no checkpoint needed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.checkpoint.config_json import read_config
from engine.checkpoint.model_config import CheckpointError, DeepseekV3Config, ModelConfig, Qwen3MoeConfig, Yarn
from engine.config import EngineConfig

QWEN3_30B_A3B = Qwen3MoeConfig(
    family="qwen3_moe",
    layers=48,
    hidden=2048,
    vocab=151936,
    heads=32,
    kv_heads=4,
    head_dim=128,
    experts=128,
    experts_per_token=8,
    expert_inner=768,
    norm_eps=1e-6,
    max_positions=40960,
    rope_theta=1e6,
    renormalise=True,
    dtype="bfloat16",
    eos=[151645, 151643],
)

DEEPSEEK_V3 = DeepseekV3Config(
    family="deepseek_v3",
    layers=61,
    hidden=7168,
    vocab=129280,
    heads=128,
    experts=256,
    experts_per_token=8,
    expert_inner=2048,
    norm_eps=1e-6,
    max_positions=163840,
    rope_theta=1e4,
    yarn=Yarn(factor=40.0, original_positions=4096, mscale=1.0, mscale_all_dim=1.0),
    renormalise=True,
    dtype="bfloat16",
    eos=[1],
    q_lora=1536,
    kv_lora=512,
    nope_dim=128,
    rope_dim=64,
    value_dim=128,
    dense_layers=3,
    dense_inner=18432,
    shared_experts=1,
    groups=8,
    top_groups=4,
    routed_scaling=2.5,
)

KIMI_K2 = msgspec.structs.replace(
    DEEPSEEK_V3,
    vocab=163840,
    heads=64,
    experts=384,
    max_positions=131072,
    rope_theta=5e4,
    yarn=Yarn(factor=32.0, original_positions=4096, beta_fast=1.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0),
    dense_layers=1,
    groups=1,
    top_groups=1,
    routed_scaling=2.827,
    eos=[163585],
)

QWEN3_TINY = Qwen3MoeConfig(
    family="qwen3_moe",
    layers=8,
    hidden=64,
    vocab=320,
    heads=4,
    kv_heads=2,
    head_dim=16,
    experts=8,
    experts_per_token=2,
    expert_inner=32,
    norm_eps=1e-6,
    max_positions=4096,
    rope_theta=1e4,
    renormalise=True,
    dtype="float32",
    eos=[256],
)

DEEPSEEK_TINY = DeepseekV3Config(
    family="deepseek_v3",
    layers=8,
    hidden=64,
    vocab=320,
    heads=4,
    experts=8,
    experts_per_token=2,
    expert_inner=32,
    norm_eps=1e-6,
    max_positions=4096,
    rope_theta=1e4,
    yarn=Yarn(factor=4.0, original_positions=1024, mscale=1.0, mscale_all_dim=1.0),
    renormalise=True,
    dtype="float32",
    eos=[256],
    q_lora=24,
    kv_lora=32,
    nope_dim=16,
    rope_dim=8,
    value_dim=16,
    dense_layers=1,
    dense_inner=96,
    shared_experts=1,
    groups=4,
    top_groups=2,
    routed_scaling=2.5,
)

PRESETS: dict[str, ModelConfig] = {
    "qwen3-30b-a3b": QWEN3_30B_A3B,
    "deepseek-v3": DEEPSEEK_V3,
    "kimi-k2": KIMI_K2,
    "kimi-k2-mini": msgspec.structs.replace(KIMI_K2, layers=4),
    "qwen3-tiny": QWEN3_TINY,
    "deepseek-tiny": DEEPSEEK_TINY,
}
"""`kimi-k2-mini` has Kimi K2's widths, one dense and three expert layers: 108 GB in bfloat16, for one 141 GB GPU."""


CUT = "@"
"""`NAME@LAYERS` is a preset cut down to its first layers, such as kimi-k2@12."""


def preset(model: str) -> ModelConfig | None:
    """The preset of this name, cut down if it says so; None when there is none. Raise CheckpointError for a cut that
    the preset does not have."""
    name, cut, layers = model.partition(CUT)
    whole = PRESETS.get(name)
    if whole is None or not cut:
        return whole
    if not layers.isdecimal() or not 1 <= int(layers) <= whole.layers:
        raise CheckpointError(f"model {model!r}: {name} has 1 to {whole.layers} layers, such as {name}{CUT}4")
    return msgspec.structs.replace(whole, layers=int(layers))


def has_made_up_weights(config: EngineConfig) -> bool:
    """Whether the engine makes its weights up: because it was told to, or because a preset has none to read."""
    return config.load_format == "dummy" or preset(config.model) is not None


def model_config(model: str) -> ModelConfig:
    """The shape behind `--model`: a preset or a checkpoint folder. Raise CheckpointError when it is neither."""
    found = preset(model)
    if found is not None:
        return found
    folder = Path(model)
    if not folder.is_dir():
        names = ", ".join(sorted(PRESETS))
        raise CheckpointError(
            f"model {model!r} is neither a folder nor a preset (presets: {names}; NAME@LAYERS cuts one)"
        )
    return read_config(folder)
