from __future__ import annotations

from pathlib import Path

import pytest

from sessions.channel.interface import ChannelError
from sessions.channel.mqtt.address import PASSWORD_VARIABLE, parse_broker


def test_reads_every_part() -> None:
    address = parse_broker("mqtts://alice@broker.example:18883/lab/night")
    assert (address.host, address.port, address.tls, address.username) == ("broker.example", 18883, True, "alice")
    assert address.base == "lab/night"
    assert str(address) == "mqtts://alice@broker.example:18883/lab/night"


def test_ports_and_session_have_defaults() -> None:
    assert parse_broker("mqtt://h/lab").port == 1883
    assert parse_broker("mqtts://h/lab").port == 8883
    assert parse_broker("mqtt://h/lab").base == "lab/main"


@pytest.mark.parametrize("url", ["http://h/p", "mqtt://", "mqtt:///p", "mqtt://h", "mqtt://h/a/b/c", "mqtt://h/a+b",
                                 "mqtt://h/#", "mqtt://h:99999/p"])  # fmt: skip
def test_a_wrong_url_is_named(url: str) -> None:
    with pytest.raises(ChannelError, match="write mqtt"):
        parse_broker(url)


def test_a_password_in_the_url_is_refused_without_being_shown() -> None:
    with pytest.raises(ChannelError) as caught:
        parse_broker("mqtt://alice:hunter2@h/p")
    assert "hunter2" not in str(caught.value)


def test_the_password_comes_from_environment_or_file_and_never_shows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "hunter2")
    address = parse_broker("mqtt://alice@h/p")
    assert address.password is not None
    assert address.password.reveal() == "hunter2"
    file = tmp_path / "secret"
    file.write_text("hunter3\n")
    from_file = parse_broker("mqtt://alice@h/p", password_file=file)
    assert from_file.password is not None
    assert from_file.password.reveal() == "hunter3"
    assert "hunter" not in repr(address) + str(address) + repr(from_file)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ChannelError, match="password file"):
        parse_broker("mqtt://a@h/p", password_file=tmp_path / "none")
    with pytest.raises(ChannelError, match="TLS files"):
        parse_broker("mqtts://h/p", ca_file=tmp_path / "none").tls_context()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("[::1]", True),
        ("10.0.0.1", False),
        ("example.org", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert parse_broker(f"mqtt://{host}/p").loopback is loopback
