"""`python -m tui.console.session.diagnoser_process SOURCE`: messages in, verdicts out (see diagnoser.py).

A process of its own, so that the screens never wait for the arithmetic. It ends when nobody writes to it any more.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from probes.diagnosis.live import LiveDiagnoser
from sessions.channel.framing import FrameSplitter, FrameType, pack
from sessions.codec import UnknownKind, decode, encode
from sessions.messages import Message, QueueFrame

EVERY_S = 1.0
NICENESS = 5
READ_BYTES = 65536


def main(source: str) -> int:
    """Diagnose what is read from standard input; what is found is said by `source`."""
    os.nice(NICENESS)
    diagnoser = LiveDiagnoser(source)
    due = time.monotonic()
    try:
        for message in _messages(sys.stdin.fileno()):
            diagnoser.feed(message)
            if isinstance(message, QueueFrame) and time.monotonic() >= due:
                due = time.monotonic() + EVERY_S
                found = diagnoser.verdicts(message.t_ns)  # by the engine's clock, which may be another host's
                if found is not None:
                    found = msgspec.structs.replace(found, t_ns=time.monotonic_ns())
                    _say(sys.stdout.buffer, [found, diagnoser.change(found)])
    except BrokenPipeError:
        pass
    return 0


def _messages(descriptor: int) -> Iterator[Message]:
    splitter = FrameSplitter()
    while data := os.read(descriptor, READ_BYTES):
        for frame in splitter.feed(data):
            message = decode(frame.payload)
            if not isinstance(message, UnknownKind):
                yield message


def _say(pipe: BinaryIO, messages: list[Message | None]) -> None:
    pipe.write(b"".join(pack(FrameType.MESSAGE, encode(message)) for message in messages if message is not None))
    pipe.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
