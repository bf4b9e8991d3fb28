from __future__ import annotations

from pathlib import Path

import pytest

from probes.attach.connect import attach
from probes.attach.errors import ServerError
from sessions.channel.interface import ChannelError
from sessions.channel.unix import UnixHub
from sessions.messages import QueueFrame
from tests.brokers import MOSQUITTO, Broker
from tests.probes.attach.stub_server import StubServer


def test_a_socket(tmp_path: Path) -> None:
    hub = UnixHub(tmp_path / "e.sock", "h/engine/1", "engine")
    attached = attach(str(tmp_path / "e.sock"), "h/console/2", "console")
    assert attached.socket == str(tmp_path / "e.sock")
    attached.close("done")
    hub.close()


def test_a_server_shows_its_queues_on_a_channel(shared_data: Path) -> None:
    stub = StubServer("sglang", (shared_data / "servers" / "sglang_metrics_pp2.txt").read_text())
    attached = attach(stub.url, "h/console/2", "console")
    frame = attached.channel.subscribe([QueueFrame]).get(10)
    assert isinstance(frame, QueueFrame)
    assert [slot.decode for slot in frame.slots] == [15, 1]
    assert attached.title == f"SGLang 0.5.15 at {stub.url}"
    attached.close("done")
    stub.close()


@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
def test_a_broker(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    attached = attach(broker.url(), "h/console/2", "console")
    assert attached.socket is None
    attached.close("done")
    broker.kill()


def test_nothing_there_is_said() -> None:
    with pytest.raises(ChannelError, match="no engine listens"):
        attach("/tmp/no-such.sock", "h/console/2", "console")
    with pytest.raises(ServerError, match="cannot be reached"):
        attach("http://127.0.0.1:9", "h/console/2", "console")
