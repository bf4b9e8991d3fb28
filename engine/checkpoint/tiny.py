"""Writes a small random checkpoint that this engine and transformers both load, for trying things without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from engine.checkpoint.byte_tokenizer import byte_tokenizer
from engine.checkpoint.model_config import DeepseekV3Config, ModelConfig, Qwen3MoeConfig
from engine.checkpoint.parameters import Parameter, parameters_of
from engine.presets import DEEPSEEK_TINY, QWEN3_TINY

TinyFamily = Literal["qwen3-moe", "deepseek-v3"]
SHAPES: dict[TinyFamily, ModelConfig] = {"qwen3-moe": QWEN3_TINY, "deepseek-v3": DEEPSEEK_TINY}
SHARDS = 3
HEAD_SCALE = 4.0
"""Spreads the logits, so that two tokens hardly ever tie for the greedy choice."""


def write_tiny_checkpoint(folder: Path, family: TinyFamily, seed: int = 0, layers: int | None = None) -> ModelConfig:
    """Write config.json, safetensors shards with their index, and a byte-level tokenizer.json; return the shape.

    The same seed gives the same bytes. Raise OSError when the folder cannot be written.
    """
    config = SHAPES[family]
    if layers is not None:
        config = msgspec.structs.replace(config, layers=layers)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = _tensors(config, np.random.default_rng(seed))
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for number in range(SHARDS):
        shard = f"model-{number + 1:05d}-of-{SHARDS:05d}.safetensors"
        held = names[number * len(names) // SHARDS : (number + 1) * len(names) // SHARDS]
        save_file({name: tensors[name] for name in held}, folder / shard, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(held, shard)
    total = sum(tensor.nbytes for tensor in tensors.values())
    _write(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})
    _write(folder / "config.json", _config_json(config))
    _write(folder / "tokenizer.json", byte_tokenizer())
    _write(
        folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    )
    return config


def _tensors(config: ModelConfig, random: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    tensors: dict[str, NDArray[np.float32]] = {}
    for parameter in parameters_of(config):
        for expert in range(parameter.shape[0] if parameter.stacked else 1):
            for source in parameter.sources:
                shape = (source.rows, *parameter.shape[-1:]) if len(parameter.shape) > 1 else parameter.shape
                tensors[source.tensor.format(expert=expert)] = _values(parameter, shape, random)
    return tensors


def _values(parameter: Parameter, shape: tuple[int, ...], random: np.random.Generator) -> NDArray[np.float32]:
    noise = random.standard_normal(shape, dtype=np.float32)
    match parameter.initial:
        case "norm":
            return 1 + np.float32(0.1) * noise
        case "bias":
            return np.float32(0.05) * noise
    scale = 1.0 if parameter.name == "embed" else shape[-1] ** -0.5
    return noise * np.float32(scale * (HEAD_SCALE if parameter.name == "lm_head" else 1.0))


def _config_json(config: ModelConfig) -> dict[str, Any]:
    values: dict[str, Any] = {
        "num_hidden_layers": config.layers,
        "hidden_size": config.hidden,
        "vocab_size": config.vocab,
        "num_attention_heads": config.heads,
        "num_experts_per_tok": config.experts_per_token,
        "moe_intermediate_size": config.expert_inner,
        "rms_norm_eps": config.norm_eps,
        "max_position_embeddings": config.max_positions,
        "rope_theta": config.rope_theta,
        "norm_topk_prob": config.renormalise,
        "tie_word_embeddings": config.tied,
        "torch_dtype": config.dtype,
        "eos_token_id": config.eos[0],
        "hidden_act": "silu",
    }
    if isinstance(config, Qwen3MoeConfig):
        return values | {
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "num_key_value_heads": config.kv_heads,
            "head_dim": config.head_dim,
            "num_experts": config.experts,
            "intermediate_size": 4 * config.hidden,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
    assert isinstance(config, DeepseekV3Config) and config.yarn is not None
    return values | {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_key_value_heads": config.heads,
        "n_routed_experts": config.experts,
        "n_shared_experts": config.shared_experts,
        "n_group": config.groups,
        "topk_group": config.top_groups,
        "routed_scaling_factor": config.routed_scaling,
        "first_k_dense_replace": config.dense_layers,
        "intermediate_size": config.dense_inner,
        "q_lora_rank": config.q_lora,
        "kv_lora_rank": config.kv_lora,
        "qk_nope_head_dim": config.nope_dim,
        "qk_rope_head_dim": config.rope_dim,
        "v_head_dim": config.value_dim,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "num_nextn_predict_layers": 0,
        "rope_scaling": {
            "type": "yarn",
            "factor": config.yarn.factor,
            "original_max_position_embeddings": config.yarn.original_positions,
            "beta_fast": config.yarn.beta_fast,
            "beta_slow": config.yarn.beta_slow,
            "mscale": config.yarn.mscale,
            "mscale_all_dim": config.yarn.mscale_all_dim,
        },
    }


def _write(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
