"""Result files of other benchmark tools, read as our own results, with where their definitions differ."""

from __future__ import annotations

from sessions.compare.readers.read import read_any

__all__ = ["read_any"]
