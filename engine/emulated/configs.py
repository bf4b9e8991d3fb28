"""config.json of well-known models (their published values), as far as the emulated cluster reads them."""

from __future__ import annotations

from typing import Any

_DEEPSEEK_V3: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_hidden_layers": 61,
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "vocab_size": 129280,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "max_position_embeddings": 163840,
    "quantization_config": {"quant_method": "fp8"},
}

_KIMI_K2: dict[str, Any] = {
    **_DEEPSEEK_V3,
    "first_k_dense_replace": 1,
    "vocab_size": 163840,
    "n_routed_experts": 384,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "max_position_embeddings": 262144,
}

_INT4 = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
}

_QWEN3_30B: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "vocab_size": 151936,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "max_position_embeddings": 40960,
}

_QWEN3_235B: dict[str, Any] = {
    **_QWEN3_30B,
    "num_hidden_layers": 94,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "num_attention_heads": 64,
}

CONFIGS: dict[str, dict[str, Any]] = {
    "kimi-k2.6": {**_KIMI_K2, "quantization_config": _INT4},
    "kimi-k2": _KIMI_K2,
    "deepseek-v3": _DEEPSEEK_V3,
    "qwen3-30b-a3b": _QWEN3_30B,
    "qwen3-235b-a22b": _QWEN3_235B,
}
