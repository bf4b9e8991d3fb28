"""Joins whatever an address names: an engine's socket, a broker, or somebody's server."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from typing import NamedTuple

from sessions.channel.interface import Channel
from sessions.channel.mqtt.address import BrokerAddress, is_broker_url, parse_broker
from sessions.channel.unix import UnixHub, connect_unix, runtime_dir
from sessions.messages import Role

TIMEOUT_S = 10.0


class Attached(NamedTuple):
    """A channel to what was named, what that is, the socket that other commands connect to (None at a broker), and
    what ends everything that was started for it."""

    channel: Channel
    title: str
    socket: str | None
    close: Callable[[str], None]


def attach(address: str, source: str, role: Role, broker: Callable[[str], BrokerAddress] = parse_broker) -> Attached:
    """Join `address`: http(s)://..., mqtt(s)://..., or a socket's path; `broker` adds credentials to a broker's URL.

    Raise ChannelError or ServerError with one line.
    """
    if is_broker_url(address):
        from sessions.channel.mqtt.peer import connect_mqtt  # as below: only who attaches pays for the import

        url = broker(address)
        peer = connect_mqtt(url, source, role, TIMEOUT_S)
        return Attached(peer, str(url), None, peer.close)
    if address.startswith(("http://", "https://")):
        return _attach_server(address, source, role)
    channel = connect_unix(address, source, role, TIMEOUT_S)
    return Attached(channel, address, address, channel.close)


def _attach_server(address: str, source: str, role: Role) -> Attached:
    from probes.attach.gateway import ServerGateway
    from probes.attach.http import ServerHttp
    from probes.attach.recognise import recognise

    http = ServerHttp(address)
    server = recognise(http)
    path = runtime_dir() / f"server-{os.getpid()}-{secrets.token_hex(4)}.sock"
    hub = UnixHub(path, f"{source}/gateway", "server")
    gateway = ServerGateway(http, server, hub)
    channel = connect_unix(path, source, role, TIMEOUT_S)

    def close(reason: str) -> None:
        channel.close(reason)
        gateway.close()
        hub.close(reason)

    names = {"sglang": "SGLang", "vllm": "vLLM", "herdscope": "Herdscope"}
    title = f"{names[server.kind]} {server.version} at {http.url}".replace("  ", " ")
    return Attached(channel, title, str(path), close)
