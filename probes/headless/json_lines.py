"""Messages as JSON lines."""

from __future__ import annotations

from typing import BinaryIO

import msgspec

from probes.headless.sink import SinkGone
from sessions.messages import Message


class JsonLinesSink:
    """Writes each message as one line of JSON, with its `kind`."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._encoder = msgspec.json.Encoder()

    def write(self, message: Message) -> None:
        try:
            self._stream.write(self._encoder.encode(message) + b"\n")
            self._stream.flush()
        except (BrokenPipeError, ValueError) as error:
            raise SinkGone("standard output was closed") from error
        except OSError as error:
            raise SinkGone(f"standard output: {error.strerror}") from error

    def close(self) -> None:
        """Standard output is not ours to close."""
