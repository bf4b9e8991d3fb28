from __future__ import annotations

import time

import msgspec
import pytest

from probes.attach.forward_passes import FeedMissing, ForwardPassFeed, decode_pass
from sessions.messages import Message, QueueFrame

zmq = pytest.importorskip("zmq")


def packet(decode: int, wall: float = 0.01, queued: int = 0) -> list[bytes]:
    """As SGLang's publisher sends it: topic, sequence number, MessagePack with more fields than are read."""
    payload = {
        "worker_id": "w", "dp_rank": 0, "wall_time": wall,
        "scheduled_requests": {"num_prefill_requests": 0, "sum_prefill_tokens": 0, "var_prefill_length": 0.0,
                               "num_decode_requests": decode, "sum_decode_kv_tokens": 100},
        "queued_requests": {"num_prefill_requests": queued, "num_decode_requests": 0},
    }  # fmt: skip
    return [b"", (7).to_bytes(8, "big"), msgspec.msgpack.encode(payload)]


def feed_with(sizes: list[int], slots: int, running: int | None) -> QueueFrame:
    context = zmq.Context()
    publisher = context.socket(zmq.PUB)
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    seen: list[Message] = []
    feed = ForwardPassFeed(f"tcp://127.0.0.1:{port}", slots, "h/probe/1", seen.append, lambda: running)
    deadline = time.monotonic() + 10
    while not (seen and time.monotonic() > deadline - 9):
        assert time.monotonic() < deadline
        for size in sizes:
            publisher.send_multipart(packet(size, queued=2))
        time.sleep(0.02)
    feed.stop()
    context.destroy(linger=0)
    frame = seen[-1]
    assert isinstance(frame, QueueFrame)
    return frame


def test_a_herd_of_15_and_1_is_seen_as_two_slots() -> None:
    frame = feed_with([15, 1], slots=2, running=16)
    assert sorted(slot.decode for slot in frame.slots) == [1, 15]
    assert (frame.running, frame.waiting) == (16, 2)


def test_empty_slots_make_no_pass_and_show_as_zero() -> None:
    frame = feed_with([16], slots=8, running=16)
    assert [slot.decode for slot in frame.slots] == [16, 0, 0, 0, 0, 0, 0, 0]


def test_packets_of_another_kind_are_skipped() -> None:
    assert decode_pass([b"", b"x"]) is None
    assert decode_pass([b"", b"x", b"\xff\xff"]) is None
    forward = decode_pass(packet(3))
    assert forward is not None
    assert forward.scheduled_requests.num_decode_requests == 3


def test_a_wrong_endpoint_is_named() -> None:
    with pytest.raises(FeedMissing, match="no ZeroMQ endpoint"):
        ForwardPassFeed("nonsense", 2, "s", lambda message: None, lambda: None)
