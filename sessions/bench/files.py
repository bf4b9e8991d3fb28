"""Results of benchmark runs as JSON files."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from sessions.results import RESULT_FORMAT, BenchResult


class _Format(msgspec.Struct):
    format: int = 0
    points: object = None


def write_result(path: Path, result: msgspec.Struct) -> None:
    """Write a result whole or not at all: a file that is there already is replaced in one step."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)


def read_result(path: Path) -> BenchResult:
    """Read a result that `write_result` wrote. Raise ValueError with one line naming what is wrong with it."""
    data = path.read_bytes()
    try:
        about = msgspec.json.decode(data, type=_Format)
        if about.format > RESULT_FORMAT:
            raise ValueError(f"{path} has result format {about.format}; this version reads up to {RESULT_FORMAT}")
        return msgspec.json.decode(data, type=BenchResult)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} is not a benchmark result: {error}") from error
