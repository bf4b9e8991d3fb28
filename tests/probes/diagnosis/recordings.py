"""Writes a list of messages as a session file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sessions.messages import Message
from sessions.recording import meta
from sessions.recording.writer import RecordingWriter


def record(messages: Sequence[Message], path: Path) -> Path:
    """Record each message as arriving at its own time."""
    begun = messages[0].t_ns
    wall_ns = 1_700_000_000_000_000_000
    writer = RecordingWriter(path, meta.Origin(t_ns=begun, wall_ns=wall_ns, host="test", command_line=[], versions={}))
    arrival = begun
    for message in messages:
        arrival = max(arrival, message.t_ns)
        writer.write(arrival, message)
        writer.commit()
    writer.close("done")
    return path
