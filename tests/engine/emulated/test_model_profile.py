from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.config import ConfigError
from engine.emulated.configs import CONFIGS
from engine.emulated.model_profile import load_model, profile_of


def test_kimi_k26_weighs_what_is_published() -> None:
    kimi = load_model("kimi-k2.6")
    assert (kimi.layers, kimi.moe_layers, kimi.experts, kimi.top_k) == (61, 60, 384, 8)
    assert kimi.expert_bytes == pytest.approx(24.77e6, rel=1e-3)
    assert kimi.attention_bytes == pytest.approx(202.2e6, rel=1e-3)
    assert kimi.shared_bytes == pytest.approx(88.1e6, rel=1e-3)
    assert kimi.router_bytes == pytest.approx(5.5e6, rel=2e-3)
    assert kimi.dense_bytes == pytest.approx(793e6, rel=1e-3)
    assert kimi.head_bytes == pytest.approx(2.35e9, rel=1e-3)
    assert kimi.kv_bytes * kimi.layers == pytest.approx(70e3, rel=5e-3)
    assert kimi.total_bytes == pytest.approx(594e9, rel=1e-3)
    assert kimi.parameters == pytest.approx(1.03e12, rel=0.01)


def test_qwen3_weighs_what_is_published() -> None:
    qwen = load_model("qwen3-30b-a3b")
    assert qwen.expert_bytes == pytest.approx(9.44e6, rel=1e-3)
    assert qwen.attention_bytes + qwen.router_bytes == pytest.approx(38.2e6, rel=5e-3)
    assert qwen.parameters == pytest.approx(30.5e9, rel=0.01)


def test_a_folder_a_file_and_a_wrapped_text_config_read_alike(tmp_path: Path) -> None:
    config = CONFIGS["qwen3-30b-a3b"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    by_folder, by_file = load_model(str(tmp_path)), load_model(str(tmp_path / "config.json"))
    wrapped = profile_of(by_file.name, {"architectures": ["X"], "text_config": config})
    assert by_folder == by_file
    assert wrapped.total_bytes == by_file.total_bytes


def test_a_dense_model_has_no_experts() -> None:
    dense = profile_of(
        "llama",
        {
            "num_hidden_layers": 4,
            "hidden_size": 64,
            "vocab_size": 100,
            "intermediate_size": 256,
            "num_attention_heads": 4,
        },
    )
    assert (dense.experts, dense.dense_layers, dense.moe_layers) == (0, 4, 0)
    assert dense.parameters == 4 * (4 * 64 * 64 + 3 * 64 * 256) + 2 * 100 * 64


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": "many"}, "num_hidden_layers"),
        ({"num_experts_per_tok": 200}, "num_experts_per_tok"),
        ({"moe_intermediate_size": None}, "moe_intermediate_size"),
        ({"vocab_size": -5}, "vocab_size"),
    ],
)
def test_a_wrong_config_names_the_key(change: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        profile_of("broken", {**CONFIGS["qwen3-30b-a3b"], **change})


def test_an_unknown_model_lists_the_presets() -> None:
    with pytest.raises(ConfigError, match=r"kimi-k2\.6"):
        load_model("no-such-model")
