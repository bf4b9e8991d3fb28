"""Reads config.json into a ModelConfig, and says in one line what it does not support."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.checkpoint.model_config import (
    CheckpointError,
    DeepseekV3Config,
    Fp8Blocks,
    Int4Groups,
    ModelConfig,
    Qwen3MoeConfig,
    WeightType,
    Yarn,
)

DEEPSEEK_TYPES = ("deepseek_v3", "kimi_k2")
SUPPORTED = ("qwen3_moe", *DEEPSEEK_TYPES)


class _Fields:
    """A JSON object whose missing or ill-typed fields are refused by name."""

    def __init__(self, values: dict[str, Any], where: str) -> None:
        self.values, self.where = values, where

    def number(self, name: str, default: float | None = None) -> Any:
        value = self.values.get(name)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CheckpointError(f"{self.where}: {name} must be a number, not {value!r}")
        return value

    def size(self, name: str, default: int | None = None) -> int:
        value = self.number(name, default)
        if not isinstance(value, int) or value < 0:
            raise CheckpointError(f"{self.where}: {name} must be a whole number, not {value!r}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.values.get(name, default))

    def refuse_unless(self, name: str, allowed: tuple[Any, ...]) -> None:
        value = self.values.get(name)
        if value is not None and value not in allowed:
            raise CheckpointError(f"{self.where}: {name} = {value!r} is not supported (only {allowed[0]!r})")


def read_config(folder: Path) -> ModelConfig:
    """Parse `folder`/config.json (and generation_config.json for the end-of-sequence ids). Raise CheckpointError."""
    path = folder / "config.json"
    values = _read_object(path)
    eos = values.get("eos_token_id")
    generation = folder / "generation_config.json"
    if generation.is_file():
        eos = _read_object(generation).get("eos_token_id", eos)
    prefix = ""
    if isinstance(values.get("text_config"), dict):
        outer, values, prefix = values, values["text_config"], "language_model."
        values.setdefault("quantization_config", outer.get("quantization_config"))
        eos = eos if eos is not None else values.get("eos_token_id")
    return _parse(values, str(path), prefix, _ids(eos))


def _parse(values: dict[str, Any], where: str, prefix: str, eos: list[int]) -> ModelConfig:
    kind = values.get("model_type")
    if kind not in SUPPORTED:
        raise CheckpointError(f"{where}: architecture {kind!r} is not supported (only {', '.join(SUPPORTED)})")
    fields = _Fields(values, where)
    fields.refuse_unless("hidden_act", ("silu",))
    fields.refuse_unless("attention_bias", (False,))
    theta, yarn = _rope(fields)
    common: dict[str, Any] = {
        "layers": fields.size("num_hidden_layers"),
        "hidden": fields.size("hidden_size"),
        "vocab": fields.size("vocab_size"),
        "heads": fields.size("num_attention_heads"),
        "experts_per_token": fields.size("num_experts_per_tok"),
        "expert_inner": fields.size("moe_intermediate_size"),
        "norm_eps": fields.number("rms_norm_eps", 1e-6),
        "max_positions": fields.size("max_position_embeddings"),
        "rope_theta": theta,
        "yarn": yarn,
        "tied": fields.flag("tie_word_embeddings"),
        "dtype": _dtype(fields),
        "eos": eos,
        "prefix": prefix,
        "quantisation": _quantisation(fields),
    }
    return _qwen3_moe(fields, common) if kind == "qwen3_moe" else _deepseek_v3(fields, common)


def _qwen3_moe(fields: _Fields, common: dict[str, Any]) -> Qwen3MoeConfig:
    fields.refuse_unless("decoder_sparse_step", (1,))
    fields.refuse_unless("mlp_only_layers", ([],))
    fields.refuse_unless("use_sliding_window", (False,))
    if common["yarn"] is not None:
        raise CheckpointError(f"{fields.where}: rope scaling is not supported for qwen3_moe; remove rope_scaling")
    return Qwen3MoeConfig(
        family="qwen3_moe",
        experts=fields.size("num_experts", fields.values.get("num_local_experts")),
        renormalise=fields.flag("norm_topk_prob"),
        kv_heads=fields.size("num_key_value_heads"),
        head_dim=fields.size("head_dim", common["hidden"] // max(1, common["heads"])),
        **common,
    )


def _deepseek_v3(fields: _Fields, common: dict[str, Any]) -> DeepseekV3Config:
    fields.refuse_unless("scoring_func", ("sigmoid",))
    fields.refuse_unless("topk_method", ("noaux_tc",))
    fields.refuse_unless("moe_layer_freq", (1,))
    return DeepseekV3Config(
        family="deepseek_v3",
        experts=fields.size("n_routed_experts"),
        renormalise=fields.flag("norm_topk_prob", True),
        q_lora=fields.size("q_lora_rank", 0),
        kv_lora=fields.size("kv_lora_rank"),
        nope_dim=fields.size("qk_nope_head_dim"),
        rope_dim=fields.size("qk_rope_head_dim"),
        value_dim=fields.size("v_head_dim"),
        dense_layers=fields.size("first_k_dense_replace", 0),
        dense_inner=fields.size("intermediate_size"),
        shared_experts=fields.size("n_shared_experts", 0),
        groups=fields.size("n_group", 1),
        top_groups=fields.size("topk_group", 1),
        routed_scaling=fields.number("routed_scaling_factor", 1.0),
        rope_interleaved=fields.flag("rope_interleave", True),
        **common,
    )


def _rope(fields: _Fields) -> tuple[float, Yarn | None]:
    """The base and the scaling, from `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (before)."""
    scaling = fields.values.get("rope_parameters") or fields.values.get("rope_scaling") or {}
    theta = fields.values.get("rope_theta", scaling.get("rope_theta", 10000.0))
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return float(theta), None
    if kind != "yarn":
        raise CheckpointError(f"{fields.where}: rope scaling {kind!r} is not supported (only yarn)")
    inner = _Fields(scaling, f"{fields.where}: rope scaling")
    return float(theta), Yarn(
        factor=float(inner.number("factor")),
        original_positions=inner.size("original_max_position_embeddings"),
        beta_fast=float(inner.number("beta_fast", 32)),
        beta_slow=float(inner.number("beta_slow", 1)),
        mscale=float(inner.number("mscale", 0)),
        mscale_all_dim=float(inner.number("mscale_all_dim", 0)),
    )


def _dtype(fields: _Fields) -> WeightType:
    name = fields.values.get("dtype") or fields.values.get("torch_dtype") or "float32"
    return "float32" if name == "float32" else "bfloat16"


def _quantisation(fields: _Fields) -> Fp8Blocks | Int4Groups | None:
    config = fields.values.get("quantization_config")
    if not config:
        return None
    method = config.get("quant_method")
    if method == "fp8" and config.get("weight_block_size"):
        rows, columns = config["weight_block_size"]
        return Fp8Blocks(rows, columns)
    if method == "compressed-tensors":
        groups = list((config.get("config_groups") or {}).values())
        weights = (groups[0].get("weights") or {}) if len(groups) == 1 else {}
        packed = config.get("format", "pack-quantized") == "pack-quantized"
        if packed and weights.get("num_bits") == 4 and weights.get("symmetric", True) and weights.get("group_size"):
            return Int4Groups(weights["group_size"])
    raise CheckpointError(
        f"{fields.where}: quantisation {method!r} is not supported (only block-scaled fp8 and compressed-tensors int4)"
    )


def _ids(eos: Any) -> list[int]:
    if eos is None:
        return []
    return [int(token) for token in eos] if isinstance(eos, list) else [int(eos)]


def _read_object(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file (a checkpoint folder must hold config.json)") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: must hold a JSON object")
    return values
