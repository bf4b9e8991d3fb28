"""Dummy weights: each value hashes its parameter's name and global index, so any sharding gives the same model."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

from engine.checkpoint.parameters import Parameter
from engine.parallel.layout import Range, local_shape

CHUNK = 1 << 26
"""Values hashed at once: bounds the scratch memory to a few times 256 MB."""


def dummy_parameter(
    parameter: Parameter, ranges: tuple[Range, ...], dtype: torch.dtype, device: torch.device, seed: int = 0
) -> Tensor:
    """A rank's slice of a dummy parameter; the same bits on CPU and CUDA.

    Matrices are uniform with variance 1 / inputs, norms 1 +- 0.1, biases +- 0.05.
    """
    out = torch.empty(local_shape(parameter, ranges), dtype=dtype, device=device)
    columns = parameter.shape[-1]
    rows_index, column_index = _indices(parameter, ranges, device)
    key = int.from_bytes(hashlib.blake2b(f"{seed}/{parameter.name}".encode(), digest_size=4).digest(), "little")
    row_hash = _mix(_mix(rows_index & 0x7FFFFFFF) ^ _mix(_signed(key) ^ (rows_index >> 31)))
    column_hash = _mix(column_index + 1)
    flat = out.view(-1, len(column_hash))
    step = max(1, CHUNK // len(column_hash))
    offset, half_width = _distribution(parameter, columns)
    for start in range(0, len(flat), step):
        stop = min(start + step, len(flat))
        bits = _mix(row_hash[start:stop, None] ^ column_hash)
        uniform = (bits >> 8).to(torch.float32) * 2.0**-23
        flat[start:stop] = uniform * half_width + offset
    return out


def _indices(parameter: Parameter, ranges: tuple[Range, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Global row and column numbers of a slice seen as a matrix: all axes but the last are rows."""
    *lead, columns = parameter.shape
    if not lead:
        lead = [1]
    axis = parameter.axis or 0
    held = torch.cat([torch.arange(r.start, r.stop, device=device) for r in ranges])
    if len(parameter.shape) == 1 or axis == len(parameter.shape) - 1:
        return torch.arange(math.prod(lead), device=device), held
    inner = math.prod(lead[axis + 1 :])
    outer = torch.arange(math.prod(lead[:axis]), device=device)
    rows = (outer[:, None, None] * lead[axis] + held[None, :, None]) * inner + torch.arange(inner, device=device)
    return rows.flatten(), torch.arange(columns, device=device)


def _distribution(parameter: Parameter, inputs: int) -> tuple[float, float]:
    match parameter.initial:
        case "norm":
            return 1.0, 0.1
        case "bias":
            return 0.0, 0.05
    if parameter.name == "embed":
        return 0.0, math.sqrt(3.0)
    return 0.0, math.sqrt(3.0 / inputs)


def _signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


def _mix(value: Tensor) -> Tensor:
    """The hash lowbias32 (C. Wellons, github.com/skeeto/hash-prospector) on int32, which wraps on every device."""
    value = value.to(torch.int32)
    value = (value ^ ((value >> 16) & 0xFFFF)) * 0x21F0AAAD
    value = (value ^ ((value >> 15) & 0x1FFFF)) * 0x735A2D97
    return value ^ ((value >> 15) & 0x1FFFF)
