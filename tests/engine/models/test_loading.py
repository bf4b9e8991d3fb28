"""Slices of every layout join to the whole; quantised checkpoints; refusals."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.checkpoint.config_json import read_config
from engine.checkpoint.model_config import CheckpointError, Fp8Blocks, Int4Groups, ModelConfig
from engine.checkpoint.parameters import Parameter, parameters_of
from engine.checkpoint.safetensors_reader import Checkpoint
from engine.checkpoint.tiny import write_tiny_checkpoint
from engine.models.dequantise import dequantise_int4
from engine.models.dummy import dummy_parameter
from engine.models.loading import load_parameter
from engine.parallel.layout import ep_layout, held_ranges, pp_layout
from engine.presets import DEEPSEEK_TINY, QWEN3_TINY

CPU = torch.device("cpu")


def cut(whole: torch.Tensor, parameter: Parameter, rank: int, config: ModelConfig, ranks: int) -> torch.Tensor:
    axis = parameter.axis or 0
    ranges = held_ranges(parameter, ep_layout(config, ranks), rank)
    return torch.cat([whole.narrow(axis, r.start, len(r)) for r in ranges], axis)


def test_a_ranks_slices_are_cut_from_the_whole(tiny_checkpoint: Path) -> None:
    config = read_config(tiny_checkpoint)
    checkpoint = Checkpoint(tiny_checkpoint)
    for parameter in parameters_of(config):
        whole = load_parameter(
            checkpoint, config, parameter, held_ranges(parameter, ep_layout(config, 1), 0), torch.float32, CPU
        )
        assert whole.shape == parameter.shape
        for rank in range(4):
            ranges = held_ranges(parameter, ep_layout(config, 4), rank)
            part = load_parameter(checkpoint, config, parameter, ranges, torch.float32, CPU)
            assert torch.equal(part, cut(whole, parameter, rank, config, 4)), parameter.name


@pytest.mark.parametrize("config", [QWEN3_TINY, DEEPSEEK_TINY], ids=lambda c: c.family)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dummy_slices_are_cut_from_the_whole(config: ModelConfig, dtype: torch.dtype) -> None:
    for parameter in parameters_of(config):
        whole = dummy_parameter(parameter, held_ranges(parameter, ep_layout(config, 1), 0), dtype, CPU)
        assert whole.shape == parameter.shape
        for rank in range(4):
            part = dummy_parameter(parameter, held_ranges(parameter, ep_layout(config, 4), rank), dtype, CPU)
            assert torch.equal(part, cut(whole, parameter, rank, config, 4)), parameter.name


def test_dummy_values_are_spread_and_differ_by_name_and_seed() -> None:
    parameters = {p.name: p for p in parameters_of(QWEN3_TINY)}
    layout = pp_layout(QWEN3_TINY, 1)

    def made(name: str, seed: int = 0) -> torch.Tensor:
        parameter = parameters[name]
        return dummy_parameter(parameter, held_ranges(parameter, layout, 0), torch.float32, CPU, seed)

    gate_up = made("layers.0.gate_up")
    assert not torch.equal(gate_up, made("layers.1.gate_up"))
    assert not torch.equal(gate_up, made("layers.0.gate_up", seed=1))
    assert gate_up.unique().numel() > 0.99 * gate_up.numel()
    assert abs(gate_up.mean().item()) < 1e-3
    assert gate_up.var().item() == pytest.approx(1 / QWEN3_TINY.hidden, rel=0.02)
    rows = gate_up.flatten(0, 1)
    correlation = torch.corrcoef(rows) - torch.eye(len(rows))
    assert correlation.abs().max() < 0.75
    assert made("final_norm").sub(1).abs().max() <= 0.1


def rewrite(folder: Path, change: dict[str, dict[str, torch.Tensor]]) -> None:
    """Replace tensors of a checkpoint by others (of any names)."""
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    for name, fresh in change.items():
        shard = index["weight_map"].pop(name)
        tensors = load_file(folder / shard)
        del tensors[name]
        save_file({key: value.contiguous() for key, value in (tensors | fresh).items()}, folder / shard)
        index["weight_map"] |= dict.fromkeys(fresh, shard)
    path.write_text(json.dumps(index))


def linear_names(folder: Path) -> list[str]:
    return [name for name in Checkpoint(folder).names if "experts." in name or "kv_b_proj" in name]


def loaded(folder: Path, config: ModelConfig, ranks: int, rank: int) -> dict[str, torch.Tensor]:
    checkpoint = Checkpoint(folder)
    layout = ep_layout(config, ranks)
    return {
        p.name: load_parameter(checkpoint, config, p, held_ranges(p, layout, rank), torch.float32, CPU)
        for p in parameters_of(config)
    }


def check_same_as_dense(folder: Path, quantised: ModelConfig, dense: dict[str, torch.Tensor]) -> None:
    """Loading the quantised checkpoint equals loading one that holds its dequantised weights."""
    got = [loaded(folder, quantised, 2, rank) for rank in range(2)]
    plain = msgspec.structs.replace(quantised, quantisation=None)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    save_file({name: value.contiguous() for name, value in dense.items()}, folder / "dense.safetensors")
    index["weight_map"] |= dict.fromkeys(dense, "dense.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for rank in range(2):
        for name, tensor in loaded(folder, plain, 2, rank).items():
            assert torch.equal(got[rank][name], tensor), name


def test_block_scaled_fp8(tmp_path: Path) -> None:
    config = write_tiny_checkpoint(tmp_path, "deepseek-v3", layers=2)
    rows, columns = 24, 16
    change, dense = {}, {}
    for name in linear_names(tmp_path):
        weight = torch.from_numpy(Checkpoint(tmp_path).read(name)[0])
        blocks = [-(-weight.shape[0] // rows), -(-weight.shape[1] // columns)]
        scale = torch.rand(blocks) * 0.02 + 0.001
        wide = torch.kron(scale, torch.ones(rows, columns))[: weight.shape[0], : weight.shape[1]]
        packed = (weight / wide).clamp(-448, 448).to(torch.float8_e4m3fn)
        change[name] = {name: packed, f"{name}_scale_inv": scale}
        dense[name] = packed.float() * wide
    rewrite(tmp_path, change)
    check_same_as_dense(tmp_path, msgspec.structs.replace(config, quantisation=Fp8Blocks(rows, columns)), dense)


def test_int4_in_groups(tmp_path: Path) -> None:
    config = write_tiny_checkpoint(tmp_path, "deepseek-v3", layers=2)
    group = 16
    change, dense = {}, {}
    for name in linear_names(tmp_path):
        shape = torch.from_numpy(Checkpoint(tmp_path).read(name)[0]).shape
        values = torch.randint(-8, 8, shape)
        scale = (torch.rand(shape[0], shape[1] // group) * 0.02 + 0.001).to(torch.bfloat16)
        nibbles = (values + 8).view(shape[0], -1, 8).to(torch.int64)
        words = (nibbles << torch.arange(0, 32, 4)).sum(-1)
        packed = torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)
        stem = name.removesuffix(".weight")
        change[name] = {
            f"{stem}.weight_packed": packed,
            f"{stem}.weight_scale": scale,
            f"{stem}.weight_shape": torch.tensor(shape),
        }
        dense[name] = values.float() * scale.float().repeat_interleave(group, 1)
        assert torch.equal(dequantise_int4(packed, scale, group), dense[name])
    rewrite(tmp_path, change)
    check_same_as_dense(tmp_path, msgspec.structs.replace(config, quantisation=Int4Groups(group)), dense)


def load_all(folder: Path) -> None:
    loaded(folder, read_config(folder), 1, 0)


def test_wrong_shape_and_dtype_are_named(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, "qwen3-moe", layers=2)
    router, norm = "model.layers.1.mlp.gate.weight", "model.norm.weight"
    rewrite(tmp_path, {router: {router: torch.zeros(8, 63)}})
    with pytest.raises(CheckpointError, match=rf"tensor {router} has shape \[8, 63\], not \[8, 64\]"):
        load_all(tmp_path)
    rewrite(tmp_path, {router: {router: torch.zeros(8, 64)}, norm: {norm: torch.zeros(64, dtype=torch.int64)}})
    with pytest.raises(CheckpointError, match=rf"tensor {norm} has dtype I64, not F32 or F16 or BF16"):
        load_all(tmp_path)


def test_bfloat16_and_float16_are_read(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, "qwen3-moe", layers=1)
    name = "model.norm.weight"
    for dtype in (torch.bfloat16, torch.float16):
        values = torch.rand(64).to(dtype)
        rewrite(tmp_path, {name: {name: values}})
        config = read_config(tmp_path)
        parameter = next(p for p in parameters_of(config) if p.name == "final_norm")
        ranges = held_ranges(parameter, pp_layout(config, 1), 0)
        got = load_parameter(Checkpoint(tmp_path), config, parameter, ranges, torch.float32, CPU)
        assert torch.equal(got, values.float())
