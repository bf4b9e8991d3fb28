"""SGLang's forward-pass metrics: one message a micro-batch, over ZeroMQ, from the last pipeline stage.

The best feed there is for the herd: start the server with --enable-forward-pass-metrics and
--forward-pass-metrics-ipc-name ENDPOINT (a ZeroMQ endpoint, such as tcp://127.0.0.1:5557).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from sessions.messages import Message, QueueFrame, SlotSize

PUBLISH_PERIOD_S = 0.1
_POLL_MS = 100
MAX_SLOTS = 128


class FeedMissing(RuntimeError):
    """The feed cannot be had; one line."""


class ScheduledRequests(msgspec.Struct, frozen=True):
    """What one forward pass ran."""

    num_prefill_requests: int = 0
    sum_prefill_tokens: int = 0
    num_decode_requests: int = 0


class QueuedRequests(msgspec.Struct, frozen=True):
    """What waited meanwhile."""

    num_prefill_requests: int = 0
    num_decode_requests: int = 0


class ForwardPass(msgspec.Struct, frozen=True):
    """One micro-batch of the server. `wall_time` is its seconds; 0 is a heartbeat of an idle server."""

    wall_time: float = 0.0
    scheduled_requests: ScheduledRequests = ScheduledRequests()
    queued_requests: QueuedRequests = QueuedRequests()


_decoder = msgspec.msgpack.Decoder(ForwardPass)


def decode_pass(frames: list[bytes]) -> ForwardPass | None:
    """The message of one multipart packet (topic, sequence number, payload); None for one that is no such thing."""
    if len(frames) != 3:
        return None
    try:
        return _decoder.decode(frames[2])
    except msgspec.MsgspecError:
        return None


class Laps:
    """Gathers the decode micro-batches of one lap, which is `slots` passes: every slot once, in turn.

    An idle slot makes no pass, so a lap is shorter when slots are empty: it ends as soon as all `running` requests have
    had their step.
    """

    def __init__(self, slots: int) -> None:
        self._slots = max(1, min(slots, MAX_SLOTS))
        self._sizes: deque[int] = deque(maxlen=self._slots)

    def add(self, forward: ForwardPass) -> None:
        """A pass was run."""
        if forward.scheduled_requests.num_decode_requests:
            self._sizes.append(forward.scheduled_requests.num_decode_requests)

    def slots(self, running: int | None) -> list[int]:
        """Decode requests of each slot over the last lap, empty slots as 0."""
        lap: list[int] = []
        for size in reversed(self._sizes):
            if running is not None and lap and sum(lap) + size > running:
                break
            lap.append(size)
        return [*reversed(lap), *[0] * (self._slots - len(lap))]


class ForwardPassFeed:
    """Subscribes at `endpoint` and publishes a QueueFrame ten times a second while passes come."""

    def __init__(
        self,
        endpoint: str,
        slots: int,
        source: str,
        publish: Callable[[Message], None],
        running: Callable[[], int | None],
    ) -> None:
        """`running` tells how many requests run, when the server's metrics say. Raise FeedMissing without pyzmq."""
        try:
            import zmq
        except ImportError:
            raise FeedMissing("forward-pass metrics come over ZeroMQ: pip install pyzmq") from None
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVHWM, 10_000)
        self._socket.subscribe(b"")
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise FeedMissing(f"{endpoint!r} is no ZeroMQ endpoint ({error}): write tcp://HOST:PORT") from None
        self._laps = Laps(slots)
        self._source = source
        self._publish = publish
        self._running = running
        self._tokens = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="forward-passes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(2.0)

    def _run(self) -> None:
        due = time.monotonic()
        latest: ForwardPass | None = None
        while not self._stop.is_set():
            if self._socket.poll(_POLL_MS):
                forward = decode_pass(self._socket.recv_multipart())
                if forward is not None and forward.wall_time > 0:
                    latest = forward
                    self._laps.add(forward)
                    self._tokens += forward.scheduled_requests.num_decode_requests
            if latest is not None and time.monotonic() >= due:
                due = time.monotonic() + PUBLISH_PERIOD_S
                self._publish(self._frame(latest))
                latest = None
        self._context.destroy(linger=0)

    def _frame(self, latest: ForwardPass) -> QueueFrame:
        running = self._running()
        slots = self._laps.slots(running)
        return QueueFrame(
            source=self._source,
            t_ns=time.monotonic_ns(),
            waiting=latest.queued_requests.num_prefill_requests + latest.queued_requests.num_decode_requests,
            running=running if running is not None else sum(slots),
            slots=[SlotSize(size, 0, False) for size in slots],
            in_flight=sum(size > 0 for size in slots),
            kv_blocks_used=0,
            kv_blocks=0,
            output_tokens_total=self._tokens,
            prompt_tokens_total=0,
        )
