"""An engine's Unix-socket channel joined to a real broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.channel.bridge import Bridge
from sessions.channel.interface import ChannelClosed
from sessions.channel.mqtt.address import parse_broker
from sessions.channel.mqtt.peer import MqttPeer, connect_mqtt
from sessions.channel.unix import UnixHub
from sessions.knobs import Knobs
from sessions.messages import (
    CancelRequests,
    Goodbye,
    KnobReply,
    KnobRequest,
    KnobState,
    LoadRequest,
    Message,
    Reply,
    SubmitRequests,
    TokenEvent,
    TokenFrame,
)
from tests.brokers import MOSQUITTO, Broker
from tests.sessions.channel.mqtt.test_peer import until

ENGINE = "gpuhost-0000aa/engine/1"


class Engine:
    """A hub that answers knob requests and remembers who asked."""

    def __init__(self, path: Path) -> None:
        self.hub = UnixHub(path, ENGINE, "engine")
        self.asked: list[tuple[str, str]] = []
        self.left: list[str] = []
        self._commands = self.hub.serve([KnobRequest, SubmitRequests, CancelRequests])
        self._farewells = self.hub.subscribe([Goodbye])
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                command = self._commands.get(0.05)
            except ChannelClosed:
                return
            self.left += [m.peer for m in self._farewells.drain() if isinstance(m, Goodbye)]
            if isinstance(command, KnobRequest):
                self.asked.append((command.source, command.id))
                reply = KnobReply(source=ENGINE, t_ns=1, id=command.id, to=command.source, ok=True,
                                  knob=command.knob, applied=command.value)  # fmt: skip
                self.hub.answer(command, reply)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    running = Broker(tmp_path)
    yield running
    running.kill()


@pytest.fixture
def joined(tmp_path: Path, broker: Broker) -> Iterator[tuple[Engine, Bridge, MqttPeer]]:
    engine = Engine(tmp_path / "engine.sock")
    address = parse_broker(broker.url())
    bridge = Bridge(
        tmp_path / "engine.sock", "gpuhost-0000aa/cli/2", lambda source: connect_mqtt(address, source, "engine", 10)
    )
    console = connect_mqtt(address, "laptop-0000bb/console/3", "console", 10)
    yield engine, bridge, console
    console.close()
    bridge.close()
    engine.hub.close()


def test_state_goes_out_under_the_engines_name(joined: tuple[Engine, Bridge, MqttPeer]) -> None:
    engine, _, console = joined
    engine.hub.publish(KnobState(source=ENGINE, t_ns=time.monotonic_ns(), knobs=Knobs(async_depth=5)))
    state = console.subscribe([KnobState]).get(10)
    assert isinstance(state, KnobState)
    assert (state.source, state.knobs.async_depth) == (ENGINE, 5)


def test_a_remote_operators_command_reaches_the_engine_under_the_operators_name(
    joined: tuple[Engine, Bridge, MqttPeer],
) -> None:
    engine, _, console = joined
    command = KnobRequest(source=console.source, t_ns=time.monotonic_ns(), id="k1", knob="async_depth", value=8)
    reply = console.request(command, 20)
    assert isinstance(reply, KnobReply)
    assert (reply.ok, reply.applied) == (True, 8)
    assert engine.asked == [(console.source, "k1")]


def test_when_the_remote_asker_leaves_the_engine_is_told(joined: tuple[Engine, Bridge, MqttPeer]) -> None:
    engine, _, console = joined
    command = KnobRequest(source=console.source, t_ns=time.monotonic_ns(), id="k1", knob="async_depth", value=8)
    assert console.request(command, 20).ok
    console.close()
    until(lambda: console.source in engine.left)


def test_tokens_go_out_only_while_somebody_reads_them(joined: tuple[Engine, Bridge, MqttPeer]) -> None:
    engine, _, console = joined
    time.sleep(0.3)
    assert not engine.hub.wanted(TokenFrame)
    tokens = console.subscribe([TokenFrame])
    until(lambda: engine.hub.wanted(TokenFrame))
    engine.hub.publish(TokenFrame(source=ENGINE, t_ns=1, events=[TokenEvent("r", [7])]))
    frame = tokens.get(10)
    assert isinstance(frame, TokenFrame)
    assert frame.events[0].tokens == [7]
    tokens.close()
    until(lambda: not engine.hub.wanted(TokenFrame))


def test_when_the_engine_ends_the_bridge_ends_and_consoles_are_told(joined: tuple[Engine, Bridge, MqttPeer]) -> None:
    engine, bridge, console = joined
    farewells = console.subscribe([Goodbye])
    time.sleep(0.3)
    engine.hub.close("out of memory")
    assert bridge.ended.wait(10)
    seen: list[Message] = []
    until(lambda: seen.extend(farewells.drain()) or seen)
    assert isinstance(seen[0], Goodbye)
    assert (seen[0].peer, seen[0].reason) == (ENGINE, "out of memory")


def test_a_command_for_which_nobody_serves_is_answered(joined: tuple[Engine, Bridge, MqttPeer]) -> None:
    _, _, console = joined
    reply: Reply = console.request(
        LoadRequest(source=console.source, t_ns=time.monotonic_ns(), id="l1", concurrency=3), 20
    )
    assert (reply.ok, reply.reason) == (False, "nobody here serves load_request")
