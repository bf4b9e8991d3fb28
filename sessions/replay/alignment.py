"""Where two recordings are laid over each other: an instant of each that stands for the same event."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from sessions.recording.errors import RecordingError
from sessions.recording.markers import Mark
from sessions.recording.reader import Recording

_TIME = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d+)?)s?")
_SHOWN_MARKS = 3
START = "the start"


class Anchor(msgspec.Struct, frozen=True):
    """An instant (ns of its recorder's clock) that is put over that of another recording, and what it is."""

    t_ns: int
    what: str


def anchors(first: Path, second: Path, align: str | None = None) -> tuple[Anchor, Anchor]:
    """The instants at which to lay two recordings over each other.

    `align` is a whole number (that mark of each, from 1), a time from the start (90s, 2.5 or 1:30), or part of a mark's
    text (the first mark of each that says it). Without it: the first knob change of each, or the start of both where
    one has none. Raise RecordingError for a file that cannot be read, and for one that has no such mark or instant.
    """
    with Recording(first) as one, Recording(second) as other:
        if align is not None:
            return _anchor(one, first.name, align), _anchor(other, second.name, align)
        found = (_knob_change(one), _knob_change(other))
        if found[0] is not None and found[1] is not None:
            return _at(found[0]), _at(found[1])
        return Anchor(one.extent()[0], START), Anchor(other.extent()[0], START)


def _anchor(recording: Recording, name: str, align: str) -> Anchor:
    marks = recording.marks()
    if align.isascii() and align.isdigit():
        number = int(align)
        if not 1 <= number <= len(marks):
            raise RecordingError(f"{name} has no mark {number}: it has {len(marks)} (90s or 1:30 is a time)")
        return _at(marks[number - 1])
    if time := _TIME.fullmatch(align):
        hours, minutes, seconds = time.groups()
        start_ns, end_ns = recording.extent()
        at_ns = start_ns + int(((int(hours or 0) * 60 + int(minutes or 0)) * 60 + float(seconds)) * 1e9)
        if at_ns > end_ns:
            raise RecordingError(f"{name} ends before {align}: it is {(end_ns - start_ns) / 1e9:.1f} s long")
        return Anchor(at_ns, align)
    found = next((mark for mark in marks if align.casefold() in mark.text.casefold()), None)
    if found is None:
        said = ", ".join(repr(mark.text) for mark in marks[:_SHOWN_MARKS])
        more = ", ..." if len(marks) > _SHOWN_MARKS else ""
        raise RecordingError(f"{name}: no mark says {align!r}; its marks are: {said + more if marks else 'none'}")
    return _at(found)


def _knob_change(recording: Recording) -> Mark | None:
    return next((mark for mark in recording.marks() if mark.category == "knob"), None)


def _at(mark: Mark) -> Anchor:
    return Anchor(mark.t_ns, mark.text)
