from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.checkpoint.model_config import CheckpointError
from engine.checkpoint.safetensors_reader import Checkpoint
from engine.checkpoint.tiny import write_tiny_checkpoint

ROUTER = "model.layers.0.mlp.gate.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tiny_checkpoint(tmp_path, "qwen3-moe", layers=2)
    return tmp_path


def test_slices_equal_the_librarys(folder: Path) -> None:
    checkpoint = Checkpoint(folder)
    seen = 0
    for shard in folder.glob("*.safetensors"):
        for name, expected in load_file(shard).items():
            values, kind = checkpoint.read(name)
            assert kind == "F32" and np.array_equal(values, expected)
            part, _ = checkpoint.read(name, (slice(1, 3),))
            assert np.array_equal(part, expected[1:3])
            seen += 1
    assert seen == len(checkpoint.names) > 50


def test_a_single_file_needs_no_index(folder: Path) -> None:
    shard = sorted(folder.glob("*.safetensors"))[0]
    (folder / "model.safetensors.index.json").unlink()
    shard.rename(folder / "model.safetensors")
    assert Checkpoint(folder).names


def shard_of(folder: Path, name: str) -> Path:
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    return folder / index["weight_map"][name]


def test_missing_tensor_is_named(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tensor model\.absent is missing from the checkpoint"):
        Checkpoint(folder).info("model.absent")


def test_missing_index_is_named(folder: Path) -> None:
    (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(CheckpointError, match=r"no model\.safetensors\.index\.json and no model\.safetensors"):
        Checkpoint(folder)


def test_missing_shard_is_named(folder: Path) -> None:
    shard_of(folder, ROUTER).unlink()
    with pytest.raises(CheckpointError, match=r"safetensors: shard is missing"):
        Checkpoint(folder).info(ROUTER)


@pytest.mark.parametrize("kept", [0, 4, 100, -1])
def test_truncated_shard_is_named(folder: Path, kept: int) -> None:
    shard = shard_of(folder, ROUTER)
    shard.write_bytes(shard.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match=rf"{shard.name}: truncated") as caught:
        Checkpoint(folder).info(ROUTER)
    assert "\n" not in str(caught.value)


def test_a_tensor_that_the_index_promises_in_vain(folder: Path) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["ghost"] = shard_of(folder, ROUTER).name
    path.write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="tensor ghost is missing, although the index says it is here"):
        Checkpoint(folder).info("ghost")
