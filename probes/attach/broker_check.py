"""Tries a broker with two peers of our own: what works, how fast, and what its access list allows."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import msgspec

from probes.doctor.finding import Finding
from sessions.channel.interface import ChannelError, RequestTimeout
from sessions.channel.mqtt.address import BrokerAddress
from sessions.channel.mqtt.peer import MqttPeer, connect_mqtt
from sessions.clock import source_id
from sessions.messages import KnobRequest, LoadState, Marker

CONNECT_S = 5.0
ROUNDS = 50
WAIT_S = 5.0


def check_broker(address: BrokerAddress) -> list[Finding]:
    """Connect, measure and try. The check keeps to a session of its own, so nobody's engine is disturbed."""
    own = msgspec.structs.replace(address, session=f"check-{uuid.uuid4().hex[:8]}")
    try:
        first = connect_mqtt(own, source_id("cli") + "/check-a", "cli", CONNECT_S)
    except ChannelError as error:
        return [Finding("connection", "missing", str(error), "check address, password and certificates")]
    try:
        second = connect_mqtt(own, source_id("cli") + "/check-b", "cli", CONNECT_S)
    except ChannelError as error:
        first.close()
        return [Finding("connection", "missing", f"a second client: {error}", "raise the broker's connection limit")]
    try:
        return [
            _connection(address),
            _round_trip(first, second),
            _retained(first, second),
            _commands(first, second),
        ]
    finally:
        first.close()
        second.close()


def _connection(address: BrokerAddress) -> Finding:
    facts = f"{address}, {'TLS' if address.tls else 'no TLS'}, "
    facts += f"as {address.username}" if address.username else "without a password"
    if not address.authenticated and not address.loopback:
        return Finding("connection", "limited", facts, "engines refuse commands from a remote broker without passwords")
    return Finding("connection", "ok", facts)


def _round_trip(first: MqttPeer, second: MqttPeer) -> Finding:
    """Markers from one peer to the other, one after the other."""
    seen = second.subscribe([Marker])
    if not _until(lambda: first.wanted(Marker)):
        mend = "let every user write PREFIX/+/interest/%c"
        return Finding("round trip", "missing", "interest in messages does not get through", mend)
    times = []
    for number in range(ROUNDS):
        begun = time.monotonic()
        first.publish(Marker(source=first.source, t_ns=number, category="note", text=str(number)))
        if seen.get(WAIT_S) is None:
            return Finding("round trip", "limited", "this user may not publish", "fine for a viewer")
        times.append(time.monotonic() - begun)
    times.sort()
    middle, worst = times[ROUNDS // 2] * 1e3, times[-1] * 1e3
    return Finding("round trip", "ok", f"{middle:.1f} ms p50, {worst:.1f} ms worst of {ROUNDS}")


def _retained(first: MqttPeer, second: MqttPeer) -> Finding:
    first.publish(LoadState(source=first.source, t_ns=1, description="check"))
    message = second.subscribe([LoadState]).get(WAIT_S)
    if isinstance(message, LoadState):
        return Finding("retained", "ok", "late joiners see the last state")
    return Finding("retained", "limited", "state is not retained for this user", "fine for a viewer")


def _commands(first: MqttPeer, second: MqttPeer) -> Finding:
    commands = second.serve([KnobRequest])
    time.sleep(0.2)
    request = KnobRequest(
        source=first.source, t_ns=time.monotonic_ns(), id=uuid.uuid4().hex, knob="async_depth", value=1
    )
    try:
        reply = first.request(request, 2.0)
        return Finding("commands", "limited", reply.reason, "log in as an operator to turn knobs")
    except RequestTimeout:
        arrived = commands.drain()
    if arrived:
        return Finding("commands", "ok", "this user may turn knobs")
    return Finding("commands", "limited", "commands do not get through", "log in as an operator to turn knobs")


def _until(condition: Callable[[], bool], timeout_s: float = WAIT_S) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
