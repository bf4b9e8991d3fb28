"""Reads slices of tensors straight out of safetensors shards, touching only the pages that a slice needs.

The file is an 8-byte little-endian header length, a JSON header with each tensor's type, shape and byte range, then the
bytes (github.com/huggingface/safetensors, format). Own reading instead of the library's: numpy has no bfloat16 or fp8,
and torch must not be needed here; such tensors come as their raw bits.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.checkpoint.model_config import CheckpointError

RAW_TYPES = {
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,
    "F8_E4M3": np.uint8,
    "I64": np.int64,
    "I32": np.int32,
    "U8": np.uint8,
    "I8": np.int8,
    "BOOL": np.uint8,
}
MAX_HEADER = 100 << 20


class TensorInfo(msgspec.Struct, frozen=True):
    """One stored tensor: its safetensors type name, shape, and bytes [start, stop) of `shard`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: Path
    start: int
    stop: int


class Checkpoint:
    """The tensors of a checkpoint folder, over all its shards."""

    def __init__(self, folder: Path) -> None:
        """List the tensors from the index (or the single file). Raise CheckpointError."""
        self.folder = folder
        self._shard_of = _tensor_shards(folder)
        self._headers: dict[str, dict[str, TensorInfo]] = {}
        self._maps: dict[Path, NDArray[np.uint8]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._shard_of

    @property
    def names(self) -> list[str]:
        """All tensors, in the index's order."""
        return list(self._shard_of)

    def info(self, name: str) -> TensorInfo:
        """Where a tensor is and what it looks like. Raise CheckpointError naming a missing tensor or a broken shard."""
        shard = self._shard_of.get(name)
        if shard is None:
            raise CheckpointError(f"{self.folder}: tensor {name} is missing from the checkpoint")
        if shard not in self._headers:
            self._headers[shard] = read_header(self.folder / shard)
        info = self._headers[shard].get(name)
        if info is None:
            raise CheckpointError(
                f"{self.folder / shard}: tensor {name} is missing, although the index says it is here"
            )
        return info

    def read(self, name: str, index: tuple[slice, ...] = ()) -> tuple[NDArray[Any], str]:
        """A copy of a tensor's slice, and its type name; bfloat16 comes as uint16 bits, fp8 as uint8 bits."""
        info = self.info(name)
        if info.shard not in self._maps:
            self._maps[info.shard] = np.memmap(info.shard, np.uint8, "r")
        raw = self._maps[info.shard][info.start : info.stop].view(RAW_TYPES[info.dtype]).reshape(info.shape)
        return np.array(raw[index], copy=True), info.dtype


def read_header(path: Path) -> dict[str, TensorInfo]:
    """The tensors of one shard; every byte range is checked against the file's size. Raise CheckpointError."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            if not 2 <= length <= MAX_HEADER or 8 + length > size:
                raise CheckpointError(f"{path}: truncated or not a safetensors file ({size} bytes)")
            entries = json.loads(file.read(length))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: shard is missing") from None
    except (OSError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path}: not a safetensors file: {error}") from None
    tensors = {name: _entry(path, name, entry, 8 + length) for name, entry in entries.items() if name != "__metadata__"}
    end = max((tensor.stop for tensor in tensors.values()), default=0)
    if end > size:
        raise CheckpointError(f"{path}: truncated: {size} bytes of {end}")
    return tensors


def _entry(path: Path, name: str, entry: Any, base: int) -> TensorInfo:
    try:
        dtype, shape = entry["dtype"], tuple(int(n) for n in entry["shape"])
        start, stop = (base + int(offset) for offset in entry["data_offsets"])
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(f"{path}: the header's entry for {name} is malformed") from None
    if dtype not in RAW_TYPES:
        raise CheckpointError(f"{path}: tensor {name} has dtype {dtype}, which is not supported")
    if stop - start != math.prod(shape) * np.dtype(RAW_TYPES[dtype]).itemsize:
        raise CheckpointError(f"{path}: tensor {name} of shape {list(shape)} does not fit its {stop - start} bytes")
    return TensorInfo(name, dtype, shape, path, start, stop)


def _tensor_shards(folder: Path) -> dict[str, str]:
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if index.is_file():
        try:
            shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return {str(name): str(shard) for name, shard in shards.items()}
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise CheckpointError(f"{index}: not a safetensors index: {error}") from None
    if single.is_file():
        return dict.fromkeys(read_header(single), single.name)
    raise CheckpointError(f"{folder}: no model.safetensors.index.json and no model.safetensors")
