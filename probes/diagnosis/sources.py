"""Telling what a file is, and reading evidence from it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path


class FileKind(Enum):
    """What can be diagnosed."""

    RECORDING = "recording"
    SCRAPE = "scrape"
    TOKENS = "tokens"
    TRACE = "trace"


_SQLITE = b"SQLite format 3\x00"


def kind_of_file(path: Path) -> FileKind:
    """Tell a file's kind by its first bytes; anything unknown is taken for a trace, whose reader says what is wrong."""
    if path.is_dir():
        return FileKind.TRACE
    with path.open("rb") as file:
        head = file.read(4096)
    if head.startswith(_SQLITE) or path.suffix == ".herd":
        return FileKind.RECORDING
    text = head.lstrip()
    if text.startswith((b"# HELP", b"# TYPE", b"sglang:", b"vllm:")):
        return FileKind.SCRAPE
    if path.suffix == ".jsonl" and b'"request"' in head:
        return FileKind.TOKENS
    return FileKind.TRACE


def kinds_of(paths: Sequence[Path]) -> FileKind:
    """The one kind of several files. Raise ValueError when they differ, or when only one of the kind can be read."""
    kinds = {kind_of_file(path) for path in paths}
    if len(kinds) > 1:
        raise ValueError(f"{paths[0]} and others are of different kinds: give traces of one run, or one other file")
    kind = kinds.pop()
    if kind is not FileKind.TRACE and len(paths) > 1:
        raise ValueError(f"several {kind.value}s: give one at a time")
    return kind
