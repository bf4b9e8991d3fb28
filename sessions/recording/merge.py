"""One recording out of several hosts' recordings of the same session, on one clock."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from sessions.codec import encode
from sessions.messages import Message
from sessions.recording.errors import RecordingError
from sessions.recording.reader import Recording
from sessions.recording.writer import RecordingWriter

COMMIT_MESSAGES = 2_000
WINDOW_NS = 60_000_000_000
"""Two recorders take the same message within this, clock error included."""


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """What a merge made. `offsets_s` is what was added to each host's clock, told from UTC: as good as the hosts' time
    synchronisation."""

    path: str
    messages: int
    duplicates: int
    offsets_s: dict[str, float]


class _Arrival(NamedTuple):
    at_ns: int
    file: int
    message: Message


def merge(paths: Sequence[Path], target: Path) -> Merged:
    """Write one recording whose time is the clock of the first file's recorder; raise RecordingError.

    Arrivals move by the offset between the recorders' clocks, a message's own times by that of its source's host. A
    message that several recorders took is kept once.
    """
    if len(paths) < 2:
        raise RecordingError("a merge needs at least two recordings")
    recordings: list[Recording] = []
    try:
        recordings += (Recording(path) for path in paths)
        return _merge(recordings, target)
    finally:
        for recording in recordings:
            recording.close()


def host_of(source: str) -> str:
    """The part of a source id that names the host and boot, within which all monotonic clocks are one."""
    return source.partition("/")[0]


def _merge(recordings: Sequence[Recording], target: Path) -> Merged:
    reference = recordings[0].origin
    clocks = _Clocks(recordings)
    state = [
        clocks.moved(number, message)
        for number, recording in enumerate(recordings)
        for message in recording.seek(recording.extent()[0] - 1).state
    ]
    hosts = sorted({recording.origin.host for recording in recordings})
    writer = RecordingWriter(target, msgspec.structs.replace(reference, host=", ".join(hosts)), state)
    try:
        messages, duplicates = _write(writer, recordings, clocks)
    except RecordingError:
        writer.abandon()
        target.unlink(missing_ok=True)
        raise
    writer.close(f"merged from {', '.join(recording.path.name for recording in recordings)}")
    return Merged(path=str(target), messages=messages, duplicates=duplicates, offsets_s=clocks.in_seconds())


def _write(writer: RecordingWriter, recordings: Sequence[Recording], clocks: _Clocks) -> tuple[int, int]:
    streams = [_arrivals(number, recording, clocks) for number, recording in enumerate(recordings)]
    taken = _Taken()
    messages = duplicates = 0
    for arrival in heapq.merge(*streams, key=lambda arrival: (arrival.at_ns, arrival.file)):
        if taken.by_another(arrival):
            duplicates += 1
            continue
        writer.write(arrival.at_ns, clocks.moved(arrival.file, arrival.message))
        messages += 1
        if messages % COMMIT_MESSAGES == 0:
            writer.commit()
    writer.commit()
    return messages, duplicates


def _arrivals(number: int, recording: Recording, clocks: _Clocks) -> Iterator[_Arrival]:
    offset = clocks.of_recorder[number]
    for at_ns, message in recording.records():
        yield _Arrival(at_ns + offset, number, message)


class _Clocks:
    """What to add to each recorder's and each source host's clock."""

    def __init__(self, recordings: Sequence[Recording]) -> None:
        origins = [recording.origin for recording in recordings]
        self._anchor = origins[0].wall_ns - origins[0].t_ns
        self.of_recorder = [origin.wall_ns - origin.t_ns - self._anchor for origin in origins]
        self._of_host: dict[str, int] = {}
        self._names = [str(recording.path) for recording in recordings]
        for recording in recordings:
            for source, (_, t_ns, wall_ns) in recording.sources().items():
                self._of_host.setdefault(host_of(source), wall_ns - t_ns - self._anchor)

    def moved(self, number: int, message: Message) -> Message:
        """The message of file `number` with its time on the common clock."""
        offset = self._of_host.get(host_of(message.source), self.of_recorder[number])
        return msgspec.structs.replace(message, t_ns=message.t_ns + offset) if offset else message

    def in_seconds(self) -> dict[str, float]:
        """Offsets by file and by host."""
        files = dict(zip(self._names, self.of_recorder, strict=True))
        return {name: offset / 1e9 for name, offset in (files | self._of_host).items()}


class _Taken:
    """Messages of the last minute and which file had them, to find those that two recorders took."""

    def __init__(self) -> None:
        self._seen: dict[bytes, tuple[int, int]] = {}
        self._swept_ns = 0

    def by_another(self, arrival: _Arrival) -> bool:
        """Whether another file had this message already; remembers it."""
        key = blake2b(encode(arrival.message), digest_size=16).digest()
        known = self._seen.get(key)
        if known is not None and known[1] != arrival.file:
            return True
        self._seen[key] = (arrival.at_ns, arrival.file)
        if arrival.at_ns - self._swept_ns > WINDOW_NS:
            self._swept_ns = arrival.at_ns
            self._seen = {key: seen for key, seen in self._seen.items() if arrival.at_ns - seen[0] < WINDOW_NS}
        return False
