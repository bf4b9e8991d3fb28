"""Consoles attached through a broker, an operator's and a viewer's, are told of a herd, and no secret shows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from sessions.channel.interface import RequestTimeout
from sessions.channel.mqtt.address import PASSWORD_VARIABLE, BrokerAddress, Password, parse_broker
from sessions.channel.mqtt.peer import MqttPeer, connect_mqtt
from sessions.clock import source_id
from sessions.messages import RequestSpec, SubmitRequests, Verdicts
from tests.brokers import MOSQUITTO, Broker
from tui.console.session.attached import AttachedSession
from tui.console.store.store import Store

ACL = Path(__file__).resolve().parents[2] / "docs" / "mqtt" / "mosquitto.acl"
SERVE = [
    *(sys.executable, "-m", "tui.cli.main", "serve", "--http", "0", "--emulate", "8x-rtx-pro-6000"),
    *("--model", "kimi-k2.6", "--pp", "8", "--async-depth", "8", "--admission", "greedy"),
]
HERD = 8

pytestmark = [pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed"), pytest.mark.timeout(180)]


def until(condition: Callable[[], object], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with passwords and an access list, an emulated engine there, and a herd in it."""
    broker = Broker(tmp_path_factory.mktemp("broker"), secured=True, acl=ACL)
    command = [*SERVE, "--broker", broker.url("engine"), "--broker-ca", str(broker.ca)]
    engine = subprocess.Popen(
        command,
        env={**os.environ, PASSWORD_VARIABLE: "engine" * 2},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    operator = connect_mqtt(_address(broker, "operator"), "desk-000001/cli/1", "cli", 30)
    requests = [RequestSpec(id=f"r{i}", prompt=[1] * 8, max_tokens=100_000, ignore_eos=True) for i in range(HERD)]
    try:
        until(lambda: _submitted(operator, requests))
        yield broker
    finally:
        operator.close()
        engine.terminate()
        engine.wait(30)
        broker.kill()


def _address(broker: Broker, user: str) -> BrokerAddress:
    return msgspec.structs.replace(parse_broker(broker.url(user), ca_file=broker.ca), password=Password(user * 2))


def _submitted(operator: MqttPeer, requests: list[RequestSpec]) -> bool:
    now_ns = time.monotonic_ns()
    command = SubmitRequests(source=operator.source, t_ns=now_ns, id=f"{operator.source}-{now_ns}", requests=requests)
    try:
        return operator.request(command, 5).ok
    except RequestTimeout:
        return False


@pytest.mark.parametrize("user", ["operator", "viewer"])
def test_the_console_is_told_of_the_herd(broker: Broker, user: str) -> None:
    session = AttachedSession(broker.url(user), lambda url: _address(broker, user))
    store = Store()
    before = set(psutil.Process().children())
    session.open()
    try:

        def told() -> Verdicts | None:
            assert session.failure is None, session.failure
            session.fill(store)
            return store.verdicts

        until(told)
        until(lambda: told() and store.expected is not None and store.expected.watts)
        (child,) = [process for process in psutil.Process().children() if process not in before]
        assert user * 2 not in " ".join(child.cmdline()) and str(broker.port) not in " ".join(child.cmdline())
        assert not child.net_connections(), "it needs no connection of its own"
    finally:
        session.close()
    assert store.verdicts is not None and store.verdict is not None
    assert store.verdicts.verdicts[0].hypothesis == "herd" and store.verdicts.verdicts[0].verdict == "holds"
    assert store.verdicts.source == source_id("console")
    assert "erd" in store.verdict.text
    assert store.expected is not None and set(store.expected.watts) == set(range(8))
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
