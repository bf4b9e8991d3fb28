"""aiomqtt's client, which also says why the broker refused a publication, and does not wait for Nagle's algorithm."""

from __future__ import annotations

import socket
from typing import Any

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from sessions.channel.mqtt.address import BrokerAddress
from sessions.channel.mqtt.outgoing import Publication
from sessions.channel.mqtt.topics import encoded

KEEPALIVE_S = 5
CONNECT_TIMEOUT_S = 5.0
PUBLISH_TIMEOUT_S = 5.0
_REFUSED = 0x80


class PublicationRefused(Exception):
    """The broker answered a publication with a reason code that means no."""


class BrokerClient(aiomqtt.Client):
    """One connection to a broker (MQTT 5 or 3.1.1), with a last will."""

    def __init__(self, address: BrokerAddress, source: str, will: Publication) -> None:
        self._mqtt5 = address.protocol == "5"
        self._refusals: dict[int, str] = {}
        super().__init__(
            address.host,
            address.port,
            username=address.username,
            password=address.password.reveal() if address.password else None,
            identifier=encoded(source),
            protocol=aiomqtt.ProtocolVersion.V5 if self._mqtt5 else aiomqtt.ProtocolVersion.V311,
            clean_session=None if self._mqtt5 else True,
            clean_start=True,
            will=aiomqtt.Will(will.topic, will.payload, will.qos, will.retain),
            timeout=CONNECT_TIMEOUT_S,
            keepalive=KEEPALIVE_S,
            tls_context=address.tls_context(),
            # Nagle's algorithm would hold small packets back for tens of milliseconds.
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        )

    async def send(self, publication: Publication) -> None:
        """Publish; with QoS 1 wait for the broker's answer. Raise aiomqtt.MqttError when the connection is gone or the
        broker does not answer in 5 s, PublicationRefused when it says no (MQTT 5 only: 3.1.1 has no way to say it)."""
        await self.publish(
            publication.topic,
            publication.payload,
            qos=publication.qos,
            retain=publication.retain,
            properties=self._expiry(publication.expiry_s),
            timeout=PUBLISH_TIMEOUT_S,
        )
        if self._refusals:
            reasons = ", ".join(self._refusals.values())
            self._refusals.clear()
            raise PublicationRefused(reasons)

    def _expiry(self, seconds: int | None) -> Properties | None:
        if seconds is None or not self._mqtt5:
            return None
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.MessageExpiryInterval = seconds
        return properties

    def _on_publish(self, client: Any, userdata: Any, mid: int, reason_code: ReasonCode, properties: Any) -> None:
        # aiomqtt drops the reason code, so that a publication refused by the broker's access list looks successful.
        if reason_code.value >= _REFUSED:
            self._refusals[mid] = str(reason_code)
        super()._on_publish(client, userdata, mid, reason_code, properties)
