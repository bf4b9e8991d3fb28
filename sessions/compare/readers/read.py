"""Reads a result file of any tool that is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sessions.bench.files import read_result
from sessions.compare.readers.aiperf import is_aiperf, read_aiperf
from sessions.compare.readers.foreign import UnreadableResult
from sessions.compare.readers.guidellm import is_guidellm, read_guidellm
from sessions.compare.readers.serving import is_serving, read_serving
from sessions.results import BenchResult


def read_any(path: Path) -> BenchResult:
    """Read a result of ours, of vLLM bench serve, SGLang bench_serving, aiperf or guidellm. Raise UnreadableResult for
    a file that is none of them, OSError when it cannot be read."""
    documents = _documents(path)
    first = documents[0]
    if isinstance(first, dict) and "points" in first:
        return read_result(path)
    if is_guidellm(first):
        return read_guidellm(path, first)
    if is_aiperf(first):
        return read_aiperf(path, first)
    if is_serving(documents):
        return read_serving(path, documents)
    raise UnreadableResult(
        f"{path} is no result of herdscope, vLLM bench serve, SGLang bench_serving, aiperf or guidellm"
    )


def _documents(path: Path) -> list[Any]:
    """The JSON value of a file, or the values of its lines. Infinity and NaN, which Python's tools write, are read."""
    data = path.read_bytes()
    try:
        return [json.loads(data)]
    except ValueError:
        pass
    try:
        documents = [json.loads(line) for line in data.splitlines() if line.strip()]
    except ValueError as error:
        raise UnreadableResult(f"{path} is neither JSON nor JSON lines: {error}") from error
    if not documents:
        raise UnreadableResult(f"{path} is empty")
    return documents
