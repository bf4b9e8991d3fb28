"""An engine, two probes and two consoles, each on its own, over a broker with TLS and an access list."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from sessions.channel.interface import ChannelClosed
from sessions.channel.mqtt.address import PASSWORD_VARIABLE, Password, parse_broker
from sessions.channel.mqtt.peer import MqttPeer, connect_mqtt
from sessions.knobs import KnobValue
from sessions.messages import (
    EngineState,
    Goodbye,
    HostFrame,
    KnobReply,
    KnobRequest,
    KnobState,
    Marker,
    Message,
    QueueFrame,
    Reply,
)
from tests.brokers import MOSQUITTO, Broker

ACL = Path(__file__).resolve().parents[2] / "docs" / "mqtt" / "mosquitto.acl"
HERDSCOPE = [sys.executable, "-m", "tui.cli.main"]
ENGINE = ["--emulate", "8x-h200", "--model", "qwen3-30b-a3b", "--pp", "8", "--async-depth", "8"]

pytestmark = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")


def until(condition: Callable[[], object], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


class Console:
    """A console's end: everything that it is told, and its requests."""

    def __init__(self, broker: Broker, user: str, number: int) -> None:
        address = msgspec.structs.replace(
            parse_broker(broker.url(user), ca_file=broker.ca), password=Password(user * 2)
        )
        self.peer: MqttPeer = connect_mqtt(address, f"desk{number}-00000{number}/console/{number}", "console", 15)
        self.seen: list[Message] = []
        self._count = 0
        self._all = self.peer.subscribe(
            [EngineState, KnobState, QueueFrame, HostFrame, Goodbye, Marker, KnobRequest, KnobReply], capacity=100_000
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                message = self._all.get(1.0)
            except ChannelClosed:
                return
            if message is not None:
                self.seen.append(message)

    def of(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.seen if isinstance(message, kind)]

    def depth(self) -> int | None:
        states = self.of(KnobState)
        return states[-1].knobs.async_depth if states else None  # type: ignore[attr-defined]

    def turn(self, value: KnobValue, timeout_s: float = 20) -> Reply:
        self._count += 1
        return self.peer.request(
            KnobRequest(
                source=self.peer.source,
                t_ns=time.monotonic_ns(),
                id=f"{self.peer.source}-{self._count}",
                knob="async_depth",
                value=value,
            ),
            timeout_s,
        )


class Deployment:
    """The processes, started together."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.processes = {
            "engine": self._start("engine", ["serve", *ENGINE, "--http", "0"]),
            "probe a": self._start("probe", ["probe"]),
            "probe b": self._start("probe", ["probe", "--rate", "5"]),
        }
        self.operator = Console(broker, "operator", 1)
        self.viewer = Console(broker, "viewer", 2)

    def _start(self, user: str, words: list[str]) -> subprocess.Popen[bytes]:
        command = [*HERDSCOPE, *words, "--broker", self.broker.url(user), "--broker-ca", str(self.broker.ca)]
        return subprocess.Popen(
            command,
            env={**os.environ, PASSWORD_VARIABLE: user * 2},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def close(self) -> None:
        self.operator.peer.close()
        self.viewer.peer.close()
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(30)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    broker = Broker(tmp_path_factory.mktemp("broker"), secured=True, acl=ACL)
    running = Deployment(broker)
    until(lambda: running.operator.of(KnobState) and running.viewer.of(KnobState), 60)
    yield running
    running.close()
    broker.kill()


@pytest.mark.timeout(180)
def test_1_both_consoles_see_the_engine_and_both_probes(deployment: Deployment) -> None:
    for console in (deployment.operator, deployment.viewer):
        until(lambda console=console: console.of(QueueFrame))  # type: ignore[misc]
        until(lambda console=console: len({m.source for m in console.of(HostFrame)}) >= 2)  # type: ignore[misc]
        states = console.of(EngineState)
        assert states[-1].phase == "ready"  # type: ignore[attr-defined]
        assert states[-1].emulated  # type: ignore[attr-defined]


def test_2_the_operators_change_reaches_the_engine_and_both_consoles(deployment: Deployment) -> None:
    reply = deployment.operator.turn(4)
    assert isinstance(reply, KnobReply)
    assert (reply.ok, reply.applied) == (True, 4)
    until(lambda: deployment.operator.depth() == deployment.viewer.depth() == 4)
    until(lambda: any(m.source == deployment.operator.peer.source for m in deployment.viewer.of(KnobRequest)))


def test_3_the_viewers_change_is_refused_with_a_message(deployment: Deployment) -> None:
    reply = deployment.viewer.turn(2)
    assert not reply.ok
    assert "does not let this user turn knobs" in reply.reason
    assert deployment.operator.depth() == 4


@pytest.mark.timeout(180)
def test_4_a_broker_killed_for_5_s_costs_frames_and_no_command(deployment: Deployment) -> None:
    deployment.broker.kill()
    replies: list[Reply] = []
    askers = [
        threading.Thread(target=lambda depth=depth: replies.append(deployment.operator.turn(depth, 60)))  # type: ignore[misc]
        for depth in (5, 6, 7)
    ]
    for asker in askers:
        asker.start()
        time.sleep(0.2)
    time.sleep(4.4)
    deployment.broker.start()
    back = time.monotonic()
    until(lambda: deployment.operator.peer.connections >= 2 and deployment.viewer.peer.connections >= 2)
    frames = len(deployment.viewer.of(QueueFrame))
    until(lambda: len(deployment.viewer.of(QueueFrame)) > frames)
    assert time.monotonic() - back < 4, "2 s on a machine of its own; these share theirs"
    for asker in askers:
        asker.join(60)
    assert [reply.ok for reply in replies] == [True] * 3
    until(lambda: deployment.viewer.depth() == deployment.operator.depth())
    replied = [m.id for m in deployment.operator.of(KnobReply) if isinstance(m, KnobReply) and m.ok]
    assert len(replied) == len(set(replied)), "no command was applied twice"
    alerts = [m.text for m in deployment.viewer.of(Marker) if isinstance(m, Marker)]
    assert any("is gone" in text for text in alerts)
    assert any(re.search(r"is back after \d", text) for text in alerts)
    until(lambda: len({m.source for m in deployment.viewer.seen[-200:] if isinstance(m, HostFrame)}) >= 2)


@pytest.mark.timeout(120)
def test_5_both_consoles_know_of_a_killed_engine_within_3_s(deployment: Deployment) -> None:
    deployment.processes["engine"].send_signal(signal.SIGKILL)
    killed = time.monotonic()

    def told(console: Console) -> bool:
        return any("/engine/" in m.peer for m in console.of(Goodbye) if isinstance(m, Goodbye) and not m.expected)

    until(lambda: told(deployment.operator) and told(deployment.viewer), 10)
    assert time.monotonic() - killed < 3
