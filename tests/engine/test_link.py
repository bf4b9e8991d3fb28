from __future__ import annotations

import socket
import struct
import threading
import time

import msgspec
import pytest

from engine.link import LENGTH, MAX_FRAME, Link, LinkClosed


class Text(msgspec.Struct, frozen=True, tag="text"):
    body: str


class Number(msgspec.Struct, frozen=True, tag="number"):
    value: int


def pair() -> tuple[Link[Text | Number], Link[Text | Number]]:
    a, b = socket.socketpair()
    return Link(a, Text | Number), Link(b, Text | Number)


def test_messages_come_whole_and_in_order() -> None:
    a, b = pair()
    sent = [Text("x" * size) for size in (0, 1, 70_000, 3)] + [Number(7)]
    for message in sent:
        a.send(message)
    assert [b.receive(1.0) for _ in sent] == sent
    assert b.receive(0.01) is None


def test_two_sides_that_both_send_a_lot_do_not_wait_for_each_other() -> None:
    a, b = pair()
    big = Text("y" * 1_000_000)
    for link in (a, b):
        link.send(big)
        link.send(big)
    assert a.backlog and b.backlog
    got = {"a": 0, "b": 0}
    deadline = time.monotonic() + 10
    while min(got.values()) < 2 and time.monotonic() < deadline:
        got["a"] += a.receive(0.01) == big
        got["b"] += b.receive(0.01) == big
    assert got == {"a": 2, "b": 2}


def test_threads_may_send_while_another_receives() -> None:
    a, b = pair()
    count = 2000

    def send(first: int) -> None:
        for value in range(first, first + count):
            a.send(Number(value))
            a.flush(5.0)

    stop = threading.Event()

    def receive_on_a() -> None:
        while not stop.is_set():
            a.receive(0.0)

    threads = [threading.Thread(target=send, args=(k * count,)) for k in range(2)]
    threads.append(threading.Thread(target=receive_on_a))
    for thread in threads:
        thread.start()
    got = [b.receive(5.0) for _ in range(2 * count)]
    stop.set()
    for thread in threads:
        thread.join(5)
    values = [number.value for number in got if isinstance(number, Number)]
    assert sorted(values) == list(range(2 * count))
    assert [v for v in values if v < count] == list(range(count))
    assert b.receive(0.05) is None


def test_a_closed_or_dead_peer_is_noticed() -> None:
    a, b = pair()
    b.close()
    with pytest.raises(LinkClosed):
        a.receive(1.0)
    with pytest.raises(LinkClosed):
        for _ in range(3):
            a.send(Number(1))


def test_an_absurd_length_closes_the_link() -> None:
    a, b = socket.socketpair()
    link: Link[Text] = Link(a, Text)
    b.sendall(struct.pack(LENGTH.format, MAX_FRAME + 1))
    with pytest.raises(LinkClosed, match="is more than"):
        link.receive(1.0)
