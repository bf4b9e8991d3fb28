"""The Unix-socket carrier between real processes: deaths, stuck readers, hostile peers."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sessions.channel import outbox
from sessions.channel.framing import FrameType, pack
from sessions.channel.greeting import hello
from sessions.channel.interface import ChannelClosed
from sessions.channel.unix import UnixHub, connect_unix
from sessions.codec import encode
from sessions.messages import DroppedFrames, Goodbye, Hello, KnobRequest, LogLine, LogLines, Marker

READER = """
import sys, time
from sessions.channel.unix import connect_unix
from sessions.messages import DroppedFrames, LogLines, Marker
peer = connect_unix(sys.argv[1], "reader", "console", 10)
sub = peer.subscribe([LogLines, Marker, DroppedFrames], capacity=100_000)
print("ready", flush=True)
frames = told = markers = 0
while markers < int(sys.argv[2]):
    message = sub.get(30)
    frames += isinstance(message, LogLines)
    markers += isinstance(message, Marker)
    told += message.count if isinstance(message, DroppedFrames) else 0
print(frames, told, sub.dropped, markers, flush=True)
time.sleep(60)
"""

SERVER = """
import sys, time
from sessions.channel.unix import connect_unix
from sessions.messages import KnobRequest
peer = connect_unix(sys.argv[1], "server", "engine", 10)
served = peer.serve([KnobRequest])
print("ready", flush=True)
served.get(30)
print("took it", flush=True)
time.sleep(60)
"""

HUB = """
import sys, time
from sessions.channel.unix import UnixHub
hub = UnixHub(sys.argv[1], "hub", "engine")
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[UnixHub]:
    hub = UnixHub(tmp_path / "s", "hub", "engine")
    yield hub
    hub.close()


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, *map(str, arguments)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def marker(text: str = "") -> Marker:
    return Marker(source="hub", t_ns=1, category="note", text=text)


def test_killed_peer_is_noticed_and_its_askers_answered(
    hub: UnixHub, spawn: Callable[..., subprocess.Popen[str]]
) -> None:
    goodbyes = hub.subscribe([Goodbye])
    process = spawn(SERVER, hub.path)
    asker = connect_unix(hub.path, "asker", "console", 5)
    time.sleep(0.1)
    command = KnobRequest(source="asker", t_ns=1, id="1", knob="async_depth", value=2)
    future = asker._ask(command)
    assert line(process) == "took it"
    process.send_signal(signal.SIGKILL)
    left = goodbyes.get(5)
    assert isinstance(left, Goodbye)
    assert (left.peer, left.expected) == ("server", False)
    reply = future.result(5)
    assert not reply.ok
    assert reply.reason.startswith("server is gone: connection lost")
    asker.close()


def test_killed_hub_is_noticed(tmp_path: Path, spawn: Callable[..., subprocess.Popen[str]]) -> None:
    process = spawn(HUB, tmp_path / "s")
    peer = connect_unix(tmp_path / "s", "peer", "console", 5)
    sub = peer.subscribe([Goodbye])
    process.send_signal(signal.SIGKILL)
    left = sub.get(5)
    assert isinstance(left, Goodbye)
    assert (left.peer, left.expected) == ("hub", False)
    with pytest.raises(ChannelClosed):
        sub.get(5)
    peer.close()
    # The stale socket does not keep a new hub from starting.
    again = UnixHub(tmp_path / "s", "hub", "engine")
    again.close()


def test_stopped_reader_slows_nobody_and_loses_only_old_frames(
    hub: UnixHub, spawn: Callable[..., subprocess.Popen[str]]
) -> None:
    markers = 20
    process = spawn(READER, hub.path, markers)
    other = connect_unix(hub.path, "other", "console", 5)
    sub = other.subscribe([Marker], capacity=10)
    time.sleep(0.1)
    process.send_signal(signal.SIGSTOP)
    before = psutil.Process().memory_info().rss
    frame = LogLines(source="hub", t_ns=1, lines=[LogLine(1, None, "x" * 10_000)])
    frames = 4_000
    for number in range(frames):
        hub.publish(frame)
        if number % (frames // markers) == 0:
            hub.publish(marker(str(number)))
            assert sub.get(5) is not None, "another reader goes on at once"
    grown = psutil.Process().memory_info().rss - before
    assert grown < 4 * outbox.MAX_FRAME_BACKLOG, "the backlog of a stuck reader is bounded"
    process.send_signal(signal.SIGCONT)
    received, told, dropped, got = map(int, line(process).split())
    assert got == markers, "what is no frame is never dropped"
    assert told == dropped > 0
    assert received + told <= frames
    other.close()


def test_reader_that_leaves_too_much_unread_is_disconnected(
    hub: UnixHub, spawn: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_BACKLOG", 1024 * 1024)
    monkeypatch.setattr(outbox.Outbox.__init__, "__defaults__", (outbox.MAX_FRAME_BACKLOG, 1024 * 1024))
    goodbyes = hub.subscribe([Goodbye])
    process = spawn(READER, hub.path, 10_000)
    time.sleep(0.1)
    process.send_signal(signal.SIGSTOP)
    for _ in range(500):
        hub.publish(marker("x" * 10_000))
    left = goodbyes.get(5)
    assert isinstance(left, Goodbye)
    assert left.reason == "1 MiB unread: the reader is stuck or too slow"


def _raw(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(5)
    sock.connect(os.fspath(path))
    return sock


def _reason(sock: socket.socket) -> str:
    """Everything the hub still says, up to its goodbye."""
    data = b""
    try:
        while chunk := sock.recv(65536):
            data += chunk
    except ConnectionResetError:
        pass
    sock.close()
    return data.decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "unknown frame type"),
        (b"\xff\xff\xff\xff\x01\x00\x00\x00\x00", "longer than"),
        (pack(FrameType.SUBSCRIBE, b"\x90"), "first message must be its hello"),
        (pack(FrameType.MESSAGE, b"\xc1"), "malformed message"),
        (pack(FrameType.MESSAGE, encode(marker())), "first message must be its hello"),
        (pack(FrameType.MESSAGE, b"\x91" * 100_000), "malformed message"),
    ],
)
def test_malformed_bytes_end_the_connection_with_the_reason(hub: UnixHub, data: bytes, reason: str) -> None:
    sock = _raw(hub.path)
    sock.sendall(data)
    assert reason in _reason(sock)


def test_newer_peer_is_refused_with_the_mend(hub: UnixHub) -> None:
    sock = _raw(hub.path)
    newer = Hello(source="newer", t_ns=1, role="console", host="h", pid=1, wall_ns=1, schema=99)
    sock.sendall(pack(FrameType.MESSAGE, encode(newer)))
    assert "newer uses message schema 99" in _reason(sock)


def _hostile_bytes(draw: random.Random) -> bytes:
    good = encode(marker("x" * 50))
    match draw.randrange(4):
        case 0:
            return draw.randbytes(draw.randrange(1, 200))
        case 1:
            return pack(draw.choice(list(FrameType)), draw.randbytes(draw.randrange(50)), draw.getrandbits(32))
        case 2:
            flipped = bytearray(good)
            flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
            return pack(FrameType.MESSAGE, bytes(flipped))
        case _:
            return pack(draw.choice([FrameType.COMMAND, FrameType.REPLY, FrameType.SERVE]), good)


def test_hostile_payloads_neither_stop_nor_grow_the_hub(hub: UnixHub) -> None:
    draw = random.Random(1)
    greeting = pack(FrameType.MESSAGE, encode(hello("hostile", "probe")))
    sizes = []
    for number in range(10_000):
        sock = _raw(hub.path)
        sock.sendall((greeting if draw.random() < 0.9 else b"") + _hostile_bytes(draw))
        sock.shutdown(socket.SHUT_WR)
        _reason(sock)
        if number % 1_000 == 0:
            sizes.append(psutil.Process().memory_info().rss)
    assert sizes[-1] - sizes[1] < 16 * 1024 * 1024
    peer = connect_unix(hub.path, "honest", "console", 5)
    sub = peer.subscribe([Marker])
    peer.publish(message := marker("still here"))
    assert sub.get(5) == message
    assert len(hub._peers) == 1, "no connection is left behind"
    peer.close()


def test_dropped_frames_is_a_message_for_its_readers(hub: UnixHub) -> None:
    peer = connect_unix(hub.path, "peer", "console", 5)
    sub = peer.subscribe([DroppedFrames])
    time.sleep(0.05)
    peer.receive_dropped(3)
    told = sub.get(5)
    assert isinstance(told, DroppedFrames)
    assert told.count == 3
    peer.close()
