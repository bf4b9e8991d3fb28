from __future__ import annotations

import socket
import threading
import time

from engine.link import Link, LinkClosed
from engine.worker_clock import measure_offset
from engine.worker_messages import Joined, Ping, Pong, ToDriver, ToWorker
from engine.worker_processes import Worker
from sessions.clock import source_id

AHEAD_NS = 5_000_000_000


def test_a_remote_clock_is_found_within_its_residual() -> None:
    ours, theirs = socket.socketpair()
    worker = Worker(0, Link(ours, ToDriver), None)
    worker.joined = Joined(0, 1, "elsewhere", "another-boot", "")
    remote: Link[ToWorker] = Link(theirs, ToWorker)

    def answer() -> None:
        try:
            while True:
                order = remote.receive(5.0)
                assert isinstance(order, Ping)
                remote.send(Pong(order.t_ns, time.monotonic_ns() + AHEAD_NS))
        except LinkClosed:
            return

    thread = threading.Thread(target=answer)
    thread.start()
    offset = measure_offset(worker)
    worker.link.close()
    thread.join(5)
    assert 0 < offset.residual_ns < 1_000_000_000
    assert abs(offset.offset_ns + AHEAD_NS) <= offset.residual_ns
    assert offset.to_driver(AHEAD_NS + 7) == AHEAD_NS + 7 + offset.offset_ns


def test_workers_of_this_host_share_its_clock() -> None:
    ours, _ = socket.socketpair()
    worker = Worker(0, Link(ours, ToDriver), None)
    worker.joined = Joined(0, 1, "here", source_id("worker").partition("/")[0], "")
    assert measure_offset(worker).offset_ns == 0
