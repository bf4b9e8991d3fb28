"""What can go wrong with a server that is watched."""

from __future__ import annotations


class ServerError(RuntimeError):
    """The server cannot be reached, or answered with an error; one line."""
