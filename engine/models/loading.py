"""Reads a rank's slices of the parameters out of a checkpoint, dequantising where the checkpoint is quantised."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.checkpoint.model_config import CheckpointError, Fp8Blocks, Int4Groups, ModelConfig
from engine.checkpoint.parameters import Parameter
from engine.checkpoint.safetensors_reader import Checkpoint
from engine.models.dequantise import INT4_PER_WORD, dequantise_fp8, dequantise_int4
from engine.parallel.layout import Range, local_shape

FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn}
PLAIN = ("F32", "F16", "BF16")


def load_parameter(
    checkpoint: Checkpoint,
    config: ModelConfig,
    parameter: Parameter,
    ranges: tuple[Range, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """A rank's slice of a parameter, read from the checkpoint. Raise CheckpointError naming the tensor at fault."""
    out = torch.empty(local_shape(parameter, ranges), dtype=dtype, device=device)
    if parameter.stacked:
        experts = [expert for r in ranges for expert in range(r.start, r.stop)]
        for place, expert in enumerate(experts):
            whole = (Range(0, sum(source.rows for source in parameter.sources)),)
            _fill(out[place], checkpoint, config, parameter, 0, whole, expert)
    else:
        _fill(out, checkpoint, config, parameter, parameter.axis or 0, ranges, 0)
    return out


def _fill(
    out: Tensor,
    checkpoint: Checkpoint,
    config: ModelConfig,
    parameter: Parameter,
    axis: int,
    ranges: tuple[Range, ...],
    expert: int,
) -> None:
    """Fill a matrix (or vector) from sources stacked by rows, of which `ranges` of `axis` are wanted."""
    inputs = parameter.shape[-1:] if len(parameter.shape) > 1 else ()
    first = 0
    for source in parameter.sources:
        shape = (source.rows, *inputs)
        name = source.tensor.format(expert=expert)
        at = 0
        for wanted in ranges:
            if axis == 0:
                low, high = max(wanted.start, first), min(wanted.stop, first + source.rows)
                into, index = slice(at + low - wanted.start, at + high - wanted.start), slice(low - first, high - first)
                if low < high:
                    out[into] = _read(checkpoint, config, name, shape, (index,)).to(out.device).to(out.dtype)
            else:
                rows, into = slice(first, first + source.rows), slice(at, at + len(wanted))
                index = slice(wanted.start, wanted.stop)
                values = _read(checkpoint, config, name, shape, (slice(None), index))
                out[rows, into] = values.to(out.device).to(out.dtype)
            at += len(wanted)
        first += source.rows


def _read(
    checkpoint: Checkpoint, config: ModelConfig, name: str, shape: tuple[int, ...], index: tuple[slice, ...]
) -> Tensor:
    stem = name.removesuffix(".weight")
    match config.quantisation:
        case Fp8Blocks(rows, columns) if f"{name}_scale_inv" in checkpoint:
            _check(checkpoint, name, shape, ("F8_E4M3",))
            scales = (-(-shape[0] // rows), -(-shape[1] // columns))
            _check(checkpoint, f"{name}_scale_inv", scales, PLAIN)
            return dequantise_fp8(_tensor(checkpoint, name), _tensor(checkpoint, f"{name}_scale_inv"), rows, columns)[
                index
            ]
        case Int4Groups(group) if f"{stem}.weight_packed" in checkpoint:
            _check(checkpoint, f"{stem}.weight_packed", (shape[0], shape[1] // INT4_PER_WORD), ("I32",))
            _check(checkpoint, f"{stem}.weight_scale", (shape[0], shape[1] // group), PLAIN)
            packed, scale = _tensor(checkpoint, f"{stem}.weight_packed"), _tensor(checkpoint, f"{stem}.weight_scale")
            return dequantise_int4(packed, scale, group)[index]
    _check(checkpoint, name, shape, PLAIN)
    return _tensor(checkpoint, name, index)


def _tensor(checkpoint: Checkpoint, name: str, index: tuple[slice, ...] = ()) -> Tensor:
    array, kind = checkpoint.read(name, index)
    tensor = torch.from_numpy(array)
    return tensor.view(FLOATS[kind]) if kind in FLOATS else tensor


def _check(checkpoint: Checkpoint, name: str, shape: tuple[int, ...], kinds: tuple[str, ...]) -> None:
    info = checkpoint.info(name)
    if info.shape != shape:
        raise CheckpointError(f"{info.shard}: tensor {name} has shape {list(info.shape)}, not {list(shape)}")
    if info.dtype not in kinds:
        raise CheckpointError(f"{info.shard}: tensor {name} has dtype {info.dtype}, not {' or '.join(kinds)}")
