"""Columns of values as bytes that compress well: neighbours in a column resemble each other.

Numbers become differences, and those are written one byte position after another ("byte planes"), so that zeros stand
together. Everything is exact: a column that does not fit a numeric form is kept as MessagePack.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sessions.recording.zstd import PerThread

Column = list[Any]
"""[form, payload]: how an encoded column travels inside a segment."""
Numbers = list[Any]
"""Encoded whole numbers: [first value when differences follow, least value, planes], or the last two alone."""

_PACKED = "m"
_INTEGER = "i"
_FLOAT = "f"
_DECIMAL = "d"
_SCALE = 1000.0
_EXACT = 2.0**43
"""Decimals of up to this size times 1000 are whole numbers that a double holds exactly."""

_LONG_PLANE = 256
_SAMPLE = 256
_zstd = PerThread(level=3, checksum=False, content_size=False)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class DamagedColumn(ValueError):
    """An encoded column that does not hold what it claims."""


def pack_column(values: Sequence[Any]) -> Column:
    """Encode any values; `unpack_column` gives the same list back, types included."""
    kinds = set(map(type, values))
    if kinds == {int}:
        try:
            return [_INTEGER, pack_integers(np.array(values, dtype=np.int64))]
        except OverflowError:
            pass
    elif kinds == {float}:
        floats = np.array(values, dtype=np.float64)
        with np.errstate(over="ignore"):
            scaled = np.rint(floats * _SCALE)
        if np.all(np.abs(scaled) < _EXACT):
            whole = scaled.astype(np.int64)
            if _same_bits(whole / _SCALE, floats):
                return [_DECIMAL, pack_integers(whole)]
        return [_FLOAT, pack_plain(floats.view(np.int64))]
    return [_PACKED, _encode(values)]


def unpack_column(column: Column, count: int, rows: NDArray[np.bool_] | None = None) -> list[Any]:
    """The `count` values of an encoded column, or those of the chosen rows; raise DamagedColumn."""
    form, payload = column
    if form == _PACKED:
        packed = _decode(payload)
        if not isinstance(packed, list) or len(packed) != count:
            raise DamagedColumn(f"a column does not hold {count} values")
        return packed if rows is None else list(compress(packed, rows.tolist()))
    if form == _INTEGER:
        values: NDArray[Any] = unpack_integers(payload, count)
    elif form == _DECIMAL:
        values = unpack_integers(payload, count) / _SCALE
    elif form == _FLOAT:
        values = unpack_plain(payload, count).view(np.float64)
    else:
        raise DamagedColumn(f"unknown column form {form!r}")
    found: list[Any] = (values if rows is None else values[rows]).tolist()
    return found


def pack_integers(values: NDArray[np.int64]) -> Numbers:
    """Encode int64 values, as differences where that is shorter (they may wrap around; so does the way back)."""
    if len(values) > 1:
        steps = np.diff(values, prepend=values[:1])
        if _spread(steps) < _spread(values):
            return [int(values[0]), *pack_plain(steps)]
    return [None, *pack_plain(values)]


def unpack_integers(numbers: Numbers, count: int) -> NDArray[np.int64]:
    """Undo pack_integers; raise DamagedColumn."""
    first, *plain = numbers
    values = unpack_plain(plain, count)
    if first is None:
        return values
    with np.errstate(over="ignore"):
        return np.cumsum(values, dtype=np.int64) + np.int64(first)


def pack_plain(values: NDArray[np.int64]) -> Numbers:
    """Encode int64 values as planes of their distances from the smallest."""
    if not len(values):
        return [0, []]
    least = values.min()
    return [int(least), _planes((values - least).view(np.uint64))]


def unpack_plain(numbers: Numbers, count: int) -> NDArray[np.int64]:
    """Undo pack_plain; raise DamagedColumn."""
    least, planes = numbers
    with np.errstate(over="ignore"):
        return _from_planes(planes, count).view(np.int64) + np.int64(least)


def _planes(values: NDArray[np.uint64]) -> list[bytes]:
    """Byte 0 of every value, byte 1 of every value, ... up to the largest value's.

    Long planes are compressed one by one, because each has its own distribution; a plane as long as `values` is raw.
    """
    width = (int(values.max()).bit_length() + 7) // 8
    split = values.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T
    return [_smaller(plane.tobytes()) for plane in split]


def _smaller(plane: bytes) -> bytes:
    if len(plane) < _LONG_PLANE:
        return plane
    compressed = _zstd.compress(plane)
    return compressed if len(compressed) < len(plane) else plane


def _from_planes(planes: list[bytes], count: int) -> NDArray[np.uint64]:
    split = np.zeros((count, 8), dtype=np.uint8)
    for index, plane in enumerate(planes):
        if len(plane) != count:
            plane = _zstd.decompress(plane, count)
        split[:, index] = np.frombuffer(plane, dtype=np.uint8)
    return split.view("<u8").reshape(count).astype(np.uint64)


def _spread(values: NDArray[np.int64]) -> float:
    """About the bits that the values need, told from the distances of a few hundred of them from the median."""
    sample = np.sort(values[:: len(values) // _SAMPLE + 1].astype(np.float64))
    return float(np.log2(np.abs(sample - sample[len(sample) // 2]) + 1.0).sum())


def _same_bits(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    return bool(np.array_equal(a.view(np.uint64), b.view(np.uint64)))
