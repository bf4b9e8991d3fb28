from __future__ import annotations

import threading
import time

from probes.headless.sink import QueuedSink, SinkGone
from sessions.messages import Message


def message(t_ns: int) -> Message:
    return Message(source="s", t_ns=t_ns)


class Gate:
    """A sink that waits until it is let go."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.seen: list[int] = []
        self.closed = False

    def write(self, message: Message) -> None:
        assert self.open.wait(10)
        self.seen.append(message.t_ns)

    def close(self) -> None:
        self.closed = True


def test_a_slow_sink_loses_the_oldest_and_never_delays_the_publisher() -> None:
    gate = Gate()
    sink = QueuedSink(gate, lambda why: None, capacity=10)
    begun = time.monotonic()
    for n in range(100):
        sink.publish(message(n))
    assert time.monotonic() - begun < 5
    gate.open.set()
    sink.close()
    assert gate.closed
    assert gate.seen[-10:] == list(range(90, 100))
    assert len(gate.seen) + sink.dropped == 100


def test_a_sink_that_is_gone_says_why_once() -> None:
    class Gone:
        def write(self, message: Message) -> None:
            raise SinkGone("no more")

        def close(self) -> None:
            pass

    said: list[str] = []
    sink = QueuedSink(Gone(), said.append)
    sink.publish(message(1))
    sink.publish(message(2))
    sink.close()
    assert said == ["no more"]
