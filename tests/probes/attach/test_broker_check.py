from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from probes.attach.broker_check import check_broker
from sessions.channel.mqtt.address import Password, parse_broker
from tests.brokers import MOSQUITTO, Broker, free_port

ACL = Path(__file__).resolve().parents[3] / "docs" / "mqtt" / "mosquitto.acl"
pytestmark = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")


def test_an_open_broker_on_loopback_is_all_right(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    findings = check_broker(parse_broker(broker.url()))
    broker.kill()
    assert [(f.name, f.health) for f in findings] == [
        ("connection", "ok"), ("round trip", "ok"), ("retained", "ok"), ("commands", "ok"),
    ]  # fmt: skip
    assert "ms p50" in findings[1].detail


def test_a_viewer_is_told_what_it_may_not_do(tmp_path: Path) -> None:
    broker = Broker(tmp_path, secured=True, acl=ACL)
    address = parse_broker(broker.url("viewer"), ca_file=broker.ca)
    findings = check_broker(msgspec.structs.replace(address, password=Password("viewerviewer")))
    broker.kill()
    assert [(f.name, f.health) for f in findings] == [
        ("connection", "ok"), ("round trip", "limited"), ("retained", "limited"), ("commands", "limited"),
    ]  # fmt: skip


def test_nobody_there_is_said(tmp_path: Path) -> None:
    (finding,) = check_broker(parse_broker(f"mqtt://127.0.0.1:{free_port()}/p"))
    assert finding.health == "missing"
    assert "did not let us in" in finding.detail
