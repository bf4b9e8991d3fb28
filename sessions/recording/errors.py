"""What can go wrong with a recording."""

from __future__ import annotations


class RecordingError(Exception):
    """A recording cannot be written or read; the text is one line that names the file and the mend."""
