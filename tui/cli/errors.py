"""Errors as one line for a person."""

from __future__ import annotations

ROOMS = ("sessions", "engine", "probes", "tui")


def one_line(error: BaseException) -> str:
    """Say what went wrong in one line. Our own errors are already that; others also say how to see where they rose."""
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if type(error).__module__.split(".")[0] in ROOMS:
        return text
    return f"unexpected {type(error).__name__}: {text} (HERDSCOPE_DEBUG=1 shows where)"
