"""A recording as JSON lines, for programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from sessions.messages import Message
from sessions.recording.reader import Recording
from sessions.recording.segment import Recorded

_POLL_S = 0.1
_QUIET_S = 10.0
"""A growing file that stays silent this long has lost its recorder."""


def json_lines(
    recording: Recording,
    start_ns: int | None = None,
    end_ns: int | None = None,
    kinds: Sequence[type[Message]] | None = None,
    speed: float | None = None,
    follow: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[bytes]:
    """One object a message: {"at_ns", "utc_ns", "message": {"kind", ...}}, at once or `speed` times as it happened.

    With `follow` it goes on while the file is being written, until it is finished or its recorder is silent for 10 s.
    """
    last_ns: int | None = None
    for record in _records(recording, start_ns, end_ns, kinds, follow, sleep):
        if speed is not None and last_ns is not None:
            sleep((record.at_ns - last_ns) / 1e9 / speed)
        last_ns = record.at_ns
        line = {"at_ns": record.at_ns, "utc_ns": recording.utc_ns(record.at_ns), "message": record.message}
        yield msgspec.json.encode(line) + b"\n"


def _records(
    recording: Recording,
    start_ns: int | None,
    end_ns: int | None,
    kinds: Sequence[type[Message]] | None,
    follow: bool,
    sleep: Callable[[float], None],
) -> Iterator[Recorded]:
    silent = 0.0
    while True:
        # The end is read before the records: what is written meanwhile comes in the next round.
        finished = not follow or recording.ending is not None
        reached = recording.extent()[1]
        until = reached if end_ns is None else min(reached, end_ns)
        for record in recording.records(start_ns, until, kinds):
            silent = 0.0
            yield record
        if finished or silent >= _QUIET_S or (end_ns is not None and reached >= end_ns):
            return
        start_ns = until + 1 if start_ns is None else max(start_ns, until + 1)
        sleep(_POLL_S)
        silent += _POLL_S
