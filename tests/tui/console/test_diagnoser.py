"""The diagnosis of a live session: where its verdicts go, who speaks when several could, and that its process ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sessions.channel.hub import UnixHub
from sessions.channel.peer import UnixPeer, connect_unix
from sessions.knobs import Knobs
from sessions.messages import Marker, Message, QueueFrame, Verdicts
from tests.probes.diagnosis.emulation import Setup, run
from tui.console.session.diagnoser import Diagnoser

CONSOLE = "host-abc123/console/2"

ORPHAN = """
import sys, time
from pathlib import Path
from sessions.channel.hub import UnixHub
from tui.console.session.diagnoser import Diagnoser
hub = UnixHub(Path(sys.argv[1]), "host-abc123/console/1", "engine")
diagnoser = Diagnoser(hub, True)
print(diagnoser._process.pid, flush=True)
time.sleep(60)
"""

pytestmark = pytest.mark.timeout(90)


def until(condition: Callable[[], object], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def herd() -> list[Message]:
    return run(Setup((8,), Knobs(8, "greedy", 256, True))).messages


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[UnixHub]:
    hub = UnixHub(tmp_path / "e.sock", "host-abc123/engine/1", "engine")
    yield hub
    hub.close()


@pytest.fixture
def console(hub: UnixHub, tmp_path: Path) -> Iterator[UnixPeer]:
    peer = connect_unix(tmp_path / "e.sock", CONSOLE, "console", 5)
    yield peer
    peer.close()


def _play(hub: UnixHub, messages: list[Message]) -> None:
    until(lambda: hub.wanted(QueueFrame))
    for message in messages:
        hub.publish(message)


def _go_on(hub: UnixHub, messages: list[Message]) -> None:
    """Time passes, and a frame comes: the diagnosis is said anew each second."""
    time.sleep(0.2)
    hub.publish(next(message for message in reversed(messages) if isinstance(message, QueueFrame)))


def _other(source: str) -> Verdicts:
    return Verdicts(source=source, t_ns=1, headline="said by another", verdicts=[])


def test_verdicts_go_onto_a_channel_of_ours_and_come_back(hub: UnixHub, console: UnixPeer, herd: list[Message]) -> None:
    heard = console.subscribe([Verdicts, Marker])
    diagnoser = Diagnoser(console, publishes=True)
    try:
        _play(hub, herd)
        seen: list[Message] = []

        def both() -> bool:
            _go_on(hub, herd)
            seen.extend(heard.drain())
            return any(isinstance(m, Verdicts) for m in seen) and any(isinstance(m, Marker) for m in seen)

        until(both)
        verdicts = next(m for m in seen if isinstance(m, Verdicts))
        assert verdicts.source == CONSOLE and verdicts.verdicts[0].hypothesis == "herd"
        assert diagnoser.found() == []
    finally:
        diagnoser.stop()
    assert diagnoser._process.poll() is not None


def test_elsewhere_they_are_for_us_alone(hub: UnixHub, console: UnixPeer, herd: list[Message]) -> None:
    heard = hub.subscribe([Verdicts, Marker])
    diagnoser = Diagnoser(console, publishes=False)
    found: list[Message] = []

    def told() -> bool:
        _go_on(hub, herd)
        found.extend(diagnoser.found())
        return any(isinstance(message, Verdicts) for message in found)

    try:
        _play(hub, herd)
        until(told)
    finally:
        diagnoser.stop()
    assert heard.drain() == []


@pytest.mark.parametrize(
    ("source", "publishes", "silent"),
    [
        ("host-abc123/console/1", True, True),
        ("host-abc123/console/3", True, False),
        ("host-abc123/console/3", False, True),
        (CONSOLE, True, False),
    ],
    ids=["another goes first", "we go first", "another's is heard by all", "our own"],
)
def test_one_console_speaks(
    hub: UnixHub, console: UnixPeer, herd: list[Message], source: str, publishes: bool, silent: bool
) -> None:
    heard = hub.subscribe([Verdicts])
    diagnoser = Diagnoser(console, publishes=publishes)
    told: list[Message] = []
    try:
        _play(hub, herd)
        ends = time.monotonic() + 4.0
        while time.monotonic() < ends and not told:
            diagnoser.hear([_other(source)])
            _go_on(hub, herd)
            told += [*heard.drain(), *diagnoser.found()]
    finally:
        diagnoser.stop()
    assert (not told) == silent


def test_it_ends_with_the_channel(hub: UnixHub, console: UnixPeer) -> None:
    diagnoser = Diagnoser(console, publishes=True)
    hub.close()
    until(lambda: diagnoser._process.poll() is not None, 10)
    diagnoser.stop()


def test_it_ends_when_its_console_is_killed(tmp_path: Path) -> None:
    console = subprocess.Popen([sys.executable, "-c", ORPHAN, str(tmp_path / "e.sock")], stdout=subprocess.PIPE)
    assert console.stdout is not None
    child = psutil.Process(int(console.stdout.readline()))
    assert child.is_running()
    console.send_signal(signal.SIGKILL)
    console.wait(10)
    console.stdout.close()
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 10)
