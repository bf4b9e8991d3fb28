"""What can go wrong with an export."""

from __future__ import annotations


class ExportError(Exception):
    """An export cannot be written; the text is one line that names the thing and the mend."""


def missing_library(name: str) -> ExportError:
    """The error for an optional library that is not installed."""
    return ExportError(f"this needs the {name} library: pip install 'herdscope[export]'")
