from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from sessions.channel.mqtt.address import Password, parse_broker
from sessions.channel.mqtt.peer import MqttPeer, connect_mqtt
from sessions.messages import Role
from tests.brokers import MOSQUITTO, Broker

ACL = Path(__file__).resolve().parents[4] / "docs" / "mqtt" / "mosquitto.acl"

Join = Callable[..., MqttPeer]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    running = Broker(tmp_path)
    yield running
    running.kill()


@pytest.fixture
def secured_broker(tmp_path: Path) -> Iterator[Broker]:
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    running = Broker(tmp_path, secured=True, acl=ACL)
    yield running
    running.kill()


@pytest.fixture
def join() -> Iterator[Join]:
    """Connect a peer: `join(broker, "console", user="viewer")`; closed at the end."""
    peers: list[MqttPeer] = []

    def connect(
        broker: Broker, role: Role, user: str | None = None, host: str = "hosta-000001", **options: object
    ) -> MqttPeer:
        address = parse_broker(broker.url(user), ca_file=broker.ca if broker.secured else None)
        if user is not None:
            address = msgspec.structs.replace(address, password=Password(user * 2))
        address = msgspec.structs.replace(address, **options)
        peers.append(connect_mqtt(address, f"{host}/{role}/{len(peers)}", role, timeout_s=10))
        return peers[-1]

    yield connect
    for peer in peers:
        peer.close()
