"""The diagnosis of a live session, worked out by a child process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable

from sessions.channel.framing import FrameSplitter, FrameType, pack
from sessions.channel.interface import Channel, ChannelError
from sessions.codec import decode, encode
from sessions.messages import EngineState, GpuFrame, KnobState, Marker, Message, QueueFrame, StageFrame, Verdicts
from tui.console.session.children import STOP_TIMEOUT_S, end

DIAGNOSED: tuple[type[Message], ...] = (EngineState, GpuFrame, KnobState, QueueFrame, StageFrame)
WAIT_S = 1.0
READ_BYTES = 65536
YIELD_S = 3.0
"""For so long after another console's verdict ours is not told."""


class Diagnoser:
    """Hands the child what the channel carries, and takes its verdicts.

    The child has no connection and no credentials: it reads messages from its standard input and writes verdicts to its
    standard output, whatever the carrier is and whoever may publish there. It ends with its input, so also when this
    process is killed. With `publishes` the verdicts go onto the channel, for recorders and others to see; otherwise
    they are for us alone (`found`), as a viewer may not publish through a broker.

    Of several consoles that publish about one engine, the one whose source sorts first speaks.
    """

    def __init__(self, channel: Channel, publishes: bool) -> None:
        self._channel = channel
        self._publishes = publishes
        self._found: deque[Message] = deque()
        self._others_s = float("-inf")
        self._messages = channel.subscribe(DIAGNOSED)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tui.console.session.diagnoser_process", channel.source],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._threads = [
            threading.Thread(target=work, name=f"diagnosis-{work.__name__[1:]}", daemon=True)
            for work in (self._feed, self._take)
        ]
        for thread in self._threads:
            thread.start()

    def hear(self, messages: Iterable[Message]) -> None:
        """Notice verdicts that others tell."""
        for message in messages:
            if isinstance(message, Verdicts) and self._goes_first(message.source):
                self._others_s = time.monotonic()

    def found(self) -> list[Message]:
        """Verdicts, and marks where they changed, since the last call; nothing where they are published."""
        return [self._found.popleft() for _ in range(len(self._found))]

    def stop(self) -> None:
        """End the child."""
        self._messages.close()
        end(self._process)
        for thread in self._threads:
            thread.join(STOP_TIMEOUT_S)

    def _goes_first(self, source: str) -> bool:
        own = self._channel.source
        return source < own if self._publishes else source != own

    def _feed(self) -> None:
        """A child that is slow keeps us waiting here; the subscription then drops its oldest frames."""
        pipe = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(ChannelError, OSError), pipe:
            while self._process.poll() is None:
                first = self._messages.get(WAIT_S)
                if first is not None:
                    batch = [first, *self._messages.drain()]
                    pipe.write(b"".join(pack(FrameType.MESSAGE, encode(message)) for message in batch))
                    pipe.flush()

    def _take(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        splitter = FrameSplitter()
        with contextlib.suppress(ChannelError), pipe:
            while data := pipe.read1(READ_BYTES):  # type: ignore[attr-defined]
                for frame in splitter.feed(data):
                    message = decode(frame.payload)
                    if isinstance(message, Verdicts | Marker) and time.monotonic() - self._others_s >= YIELD_S:
                        self._tell(message)

    def _tell(self, message: Message) -> None:
        if self._publishes:
            self._channel.publish(message)
        else:
            self._found.append(message)
