"""Recordings of synthetic feeds, as a recorder on the engine's host would have written them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sessions.messages import Marker
from sessions.recording.meta import Origin
from sessions.recording.writer import RecordingWriter
from tests.tui.console.feed import SOURCE, WALL, Feed

MARK_AT_S = 6.0


def record(
    feed: Feed,
    seconds: float,
    path: Path,
    mark_at_s: float = MARK_AT_S,
    category: Literal["note", "knob"] = "note",
    text: str = "something happened",
) -> int:
    """Write the feed's first seconds, with one mark in them; the last instant."""
    origin = Origin(t_ns=feed.start_ns, wall_ns=WALL, host="host", command_line=[], versions={})
    writer = RecordingWriter(path, origin)
    for message in feed.opening():
        writer.write(feed.start_ns, message)
    last = feed.start_ns
    marked = False
    for now, messages in feed.frames(seconds):
        if not marked and now - feed.start_ns >= mark_at_s * 1e9:
            marked = True
            writer.write(now, Marker(source=SOURCE, t_ns=now, category=category, text=text))
        for message in messages:
            writer.write(now, message)
        writer.commit()
        last = now
    writer.close("the session ended")
    return last
