from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.checkpoint.config_json import read_config
from engine.checkpoint.model_config import CheckpointError, Fp8Blocks, Int4Groups
from engine.checkpoint.tiny import write_tiny_checkpoint
from engine.presets import DEEPSEEK_TINY, QWEN3_TINY


def changed(folder: Path, **fields: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return folder


@pytest.mark.parametrize(("family", "shape"), [("qwen3-moe", QWEN3_TINY), ("deepseek-v3", DEEPSEEK_TINY)])
def test_a_written_config_reads_back(tmp_path: Path, family: Any, shape: Any) -> None:
    write_tiny_checkpoint(tmp_path, family)
    assert read_config(tmp_path) == shape


def test_kimi_k2_is_of_the_deepseek_family(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, "deepseek-v3")
    assert read_config(changed(tmp_path, model_type="kimi_k2")) == DEEPSEEK_TINY


def test_a_nested_text_config_gives_the_prefix(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, "deepseek-v3")
    inner = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "kimi_k25", "text_config": inner}))
    assert read_config(tmp_path) == msgspec.structs.replace(DEEPSEEK_TINY, prefix="language_model.")


def test_transformers_5_rope_parameters(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, "qwen3-moe")
    changed(tmp_path, rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    values = json.loads((tmp_path / "config.json").read_text())
    del values["rope_theta"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert read_config(tmp_path).rope_theta == 5e5


def test_quantisations(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, "deepseek-v3")
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 64]}
    assert read_config(changed(tmp_path, quantization_config=fp8)).quantisation == Fp8Blocks(128, 64)
    int4 = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32, "symmetric": True}}},
    }
    assert read_config(changed(tmp_path, quantization_config=int4)).quantisation == Int4Groups(32)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model_type": "llama"}, "architecture 'llama' is not supported"),
        ({"num_hidden_layers": "many"}, "num_hidden_layers must be a number, not 'many'"),
        ({"vocab_size": -1}, "vocab_size must be a whole number, not -1"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu' is not supported"),
        ({"mlp_only_layers": [1]}, "mlp_only_layers = [1] is not supported"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantisation 'gptq' is not supported"),
        ({"rope_scaling": {"type": "linear"}}, "rope scaling 'linear' is not supported"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    write_tiny_checkpoint(tmp_path, "qwen3-moe")
    with pytest.raises(CheckpointError) as caught:
        read_config(changed(tmp_path, **fields))
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_no_config_and_no_json(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: no such file"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_config(tmp_path)
