"""Model profiles: how many bytes and parameters each part of a model has, from its Hugging Face config.json.

For attention, experts and the rest the counts are those of the published architectures (Qwen3-MoE; DeepSeek-V3 with
multi-head latent attention, which Kimi K2 shares); other configs with grouped-query attention and a gated MLP are
read by the same rule. INT4 experts weigh 0.5 byte a parameter plus one bfloat16 scale a group.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from engine.checkpoint.model_config import CheckpointError, DeepseekV3Config, ModelConfig, Qwen3MoeConfig
from engine.config import ConfigError
from engine.emulated.configs import CONFIGS
from engine.emulated.launches import KERNELS_PER_LAYER
from engine.presets import PRESETS, preset

_WIDTHS = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
"""Bytes a parameter by the config's dtype."""


class ModelProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a model. Bytes are as stored, parameters are counts; both per layer unless said otherwise.

    The first `dense_layers` layers have a dense MLP, the others a router, `experts` experts of which each token takes
    `top_k`, and `shared_bytes` of experts that every token takes. attention_replicated_bytes of attention_bytes stay
    whole on every rank under tensor parallelism. kv_ranks: most ranks over which a token's cache entry can be split.
    score_flops: FLOPs of one token attending one position. routing_skew: exponent s of a Zipf law of the experts'
    popularity; 0 is uniform.
    """

    name: str
    architecture: str
    dtype: str
    layers: int
    dense_layers: int
    hidden: int
    vocab: int
    experts: int
    top_k: int
    attention_bytes: float
    attention_parameters: float
    attention_replicated_bytes: float
    dense_bytes: float
    dense_parameters: float
    expert_bytes: float
    expert_parameters: float
    shared_bytes: float
    shared_parameters: float
    router_bytes: float
    head_bytes: float
    kv_bytes: float
    kv_ranks: int
    score_flops: float
    activation_bytes: float = 2.0
    max_context: int = 131072
    kernels_per_layer: int = KERNELS_PER_LAYER
    routing_skew: float = 0.0

    @property
    def moe_layers(self) -> int:
        return self.layers - self.dense_layers

    def layer_bytes(self, layer: int) -> float:
        """Weights of one layer, all experts included."""
        if layer < self.dense_layers:
            return self.attention_bytes + self.dense_bytes
        return self.attention_bytes + self.router_bytes + self.shared_bytes + self.experts * self.expert_bytes

    @property
    def total_bytes(self) -> float:
        """All weights, embedding and head included."""
        return sum(self.layer_bytes(i) for i in range(self.layers)) + 2 * self.head_bytes

    @property
    def parameters(self) -> int:
        """All parameters, embedding and head included."""
        moe = self.shared_parameters + self.experts * (self.expert_parameters + self.hidden)
        body = self.layers * self.attention_parameters + self.dense_layers * self.dense_parameters
        return round(body + self.moe_layers * moe + 2 * self.vocab * self.hidden)


def load_model(name: str) -> ModelProfile:
    """The profile of a preset, a checkpoint folder or a config.json. Raise ConfigError naming what is missing."""
    if name in CONFIGS:
        return profile_of(name, CONFIGS[name])
    try:
        shape = preset(name)
    except CheckpointError as error:
        raise ConfigError(str(error)) from None
    if shape is not None:
        return profile_of(name, _config_of(shape))
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        raise ConfigError(
            f"model: {name!r} is no preset ({', '.join({**CONFIGS, **PRESETS})}), checkpoint folder or config.json"
        )
    try:
        config = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"model: cannot read {path}: {error}") from None
    if not isinstance(config, dict):
        raise ConfigError(f"model: {path} is not a JSON object")
    return profile_of(path.parent.name or name, config)


def profile_of(name: str, config: dict[str, Any]) -> ModelProfile:
    """The profile of a config.json already read. Raise ConfigError naming the key that is missing or wrong."""
    outer = config
    config = {**config.get("text_config", {}), **{k: v for k, v in config.items() if k != "text_config"}}
    read = _Reader(name, config)
    layers, hidden, vocab = (read.whole(k) for k in ("num_hidden_layers", "hidden_size", "vocab_size"))
    experts = read.first_whole(("n_routed_experts", "num_experts", "num_local_experts"), 0)
    top_k = read.first_whole(("num_experts_per_tok", "num_experts_per_token"), 0) if experts else 0
    if experts and not 1 <= top_k <= experts:
        raise ConfigError(f"model: {name}: num_experts_per_tok must be from 1 to {experts}, not {top_k}")
    dense_layers = min(layers, read.whole("first_k_dense_replace", 0)) if experts else layers
    dtype = str(config.get("torch_dtype") or config.get("dtype") or "bfloat16").removeprefix("torch.")
    width = _WIDTHS.get(dtype, 2.0)
    expert_width, other_width = _quantised_widths(outer, config, width)
    attention = _mla(read) if config.get("kv_lora_rank") else _gqa(read, hidden)
    expert_parameters = 3 * hidden * read.whole("moe_intermediate_size", 0 if not experts else None)
    shared_parameters = expert_parameters * read.whole("n_shared_experts", 0) if experts else 0
    dense_parameters = 3 * hidden * read.whole("intermediate_size", None if dense_layers else 0)
    return ModelProfile(
        name=name,
        architecture=_architecture(outer, config),
        dtype="int4" if expert_width < 1 else "float8" if expert_width < 1.5 else dtype,
        layers=layers,
        dense_layers=dense_layers,
        hidden=hidden,
        vocab=vocab,
        experts=experts,
        top_k=top_k,
        attention_bytes=attention.parameters * other_width,
        attention_parameters=attention.parameters,
        attention_replicated_bytes=attention.replicated * other_width,
        dense_bytes=dense_parameters * other_width,
        dense_parameters=dense_parameters,
        expert_bytes=expert_parameters * expert_width,
        expert_parameters=expert_parameters,
        shared_bytes=shared_parameters * other_width,
        shared_parameters=shared_parameters,
        router_bytes=experts * hidden * max(2.0, other_width),
        head_bytes=vocab * hidden * max(2.0, other_width),
        kv_bytes=attention.kv_values * 2.0,
        kv_ranks=attention.kv_ranks,
        score_flops=attention.score_flops,
        max_context=read.whole("max_position_embeddings", 131072),
    )


def _config_of(preset: ModelConfig) -> dict[str, Any]:
    """A preset of the engine in the words of config.json."""
    config: dict[str, Any] = {
        "model_type": preset.family,
        "num_hidden_layers": preset.layers,
        "hidden_size": preset.hidden,
        "vocab_size": preset.vocab,
        "num_attention_heads": preset.heads,
        "n_routed_experts": preset.experts,
        "num_experts_per_tok": preset.experts_per_token,
        "moe_intermediate_size": preset.expert_inner,
        "max_position_embeddings": preset.max_positions,
        "torch_dtype": preset.dtype,
    }
    match preset:
        case Qwen3MoeConfig():
            config |= {"num_key_value_heads": preset.kv_heads, "head_dim": preset.head_dim}
        case DeepseekV3Config():
            config |= {
                "q_lora_rank": preset.q_lora,
                "kv_lora_rank": preset.kv_lora,
                "qk_nope_head_dim": preset.nope_dim,
                "qk_rope_head_dim": preset.rope_dim,
                "v_head_dim": preset.value_dim,
                "first_k_dense_replace": preset.dense_layers,
                "intermediate_size": preset.dense_inner,
                "n_shared_experts": preset.shared_experts,
            }
    return config


class _Attention(msgspec.Struct, frozen=True):
    parameters: float
    replicated: float
    kv_values: int
    kv_ranks: int
    score_flops: float


def _mla(read: _Reader) -> _Attention:
    """Multi-head latent attention: the down projections and the latent cache are whole on every rank."""
    hidden, heads = read.whole("hidden_size"), read.whole("num_attention_heads")
    q_rank, kv_rank = read.whole("q_lora_rank", 0), read.whole("kv_lora_rank")
    nope, rope, value = (read.whole(k) for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    query = heads * (nope + rope)
    down = hidden * (q_rank + kv_rank + rope)
    up = (q_rank or hidden) * query + kv_rank * heads * (nope + value) + heads * value * hidden
    return _Attention(down + up, down, kv_rank + rope, 1, 2.0 * heads * (2 * kv_rank + rope))


def _gqa(read: _Reader, hidden: int) -> _Attention:
    """Grouped-query attention: the cache splits over as many ranks as there are key-value heads."""
    heads = read.whole("num_attention_heads")
    kv_heads = read.whole("num_key_value_heads", heads)
    size = read.whole("head_dim", hidden // heads)
    return _Attention(hidden * size * 2 * (heads + kv_heads), 0, 2 * kv_heads * size, kv_heads, 4.0 * heads * size)


def _quantised_widths(outer: dict[str, Any], config: dict[str, Any], width: float) -> tuple[float, float]:
    """Bytes a parameter of (experts, everything else), by the config's quantization_config.

    compressed-tensors INT4 (the form of Kimi K2) covers the experts only; block-scaled float8 (DeepSeek-V3) all.
    """
    quant = outer.get("quantization_config") or config.get("quantization_config") or {}
    if quant.get("quant_method") == "fp8":
        return 1.0 + 4.0 / 128**2, 1.0 + 4.0 / 128**2
    if quant.get("quant_method") == "compressed-tensors":
        groups = list((quant.get("config_groups") or {}).values())
        weights = (groups[0].get("weights") or {}) if groups else {}
        bits, group = int(weights.get("num_bits", 4)), int(weights.get("group_size") or 32)
        return bits / 8 + (2.0 / group if group > 0 else 0.0), width
    return width, width


def _architecture(outer: dict[str, Any], config: dict[str, Any]) -> str:
    names = config.get("architectures") or outer.get("architectures") or []
    return str(names[0]) if names else str(config.get("model_type", "unknown"))


class _Reader:
    """Reads counts out of a config, naming the model and the key when one is missing or no count."""

    def __init__(self, name: str, config: dict[str, Any]) -> None:
        self._name = name
        self._config = config

    def whole(self, key: str, default: int | None = None) -> int:
        value = self._config.get(key)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            found = "missing" if value is None else repr(value)
            raise ConfigError(f"model: {self._name}: config key {key} must be a whole number, it is {found}")
        return value

    def first_whole(self, keys: tuple[str, ...], default: int) -> int:
        return next((self.whole(key) for key in keys if self._config.get(key) is not None), default)
