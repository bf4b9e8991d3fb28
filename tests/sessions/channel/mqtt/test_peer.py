"""The MQTT carrier against a real broker."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import paho.mqtt.client as paho
import pytest

from sessions.channel.interface import ChannelError, RequestTimeout
from sessions.channel.mqtt.address import Password, parse_broker
from sessions.channel.mqtt.peer import MqttPeer, connect_mqtt
from sessions.channel.mqtt.topics import encoded
from sessions.codec import encode
from sessions.knobs import Knobs
from sessions.messages import (
    EngineState,
    Goodbye,
    GpuFrame,
    KnobReply,
    KnobRequest,
    KnobState,
    Marker,
    Message,
    QueueFrame,
    TokenEvent,
    TokenFrame,
)
from tests.brokers import Broker
from tests.sessions.channel.mqtt.conftest import Join


def until(condition: Callable[[], object], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


def knob_request(peer: MqttPeer, number: int, depth: int = 8) -> KnobRequest:
    return KnobRequest(source=peer.source, t_ns=time.monotonic_ns(), id=f"k{number}", knob="async_depth", value=depth)


def serve_knobs(engine: MqttPeer) -> list[KnobRequest]:
    """Answer every knob request from a thread; returns the list of those applied."""
    applied: list[KnobRequest] = []
    commands = engine.serve([KnobRequest])

    def run() -> None:
        while True:
            try:
                command = commands.get(0.5)
            except ChannelError:
                return
            if isinstance(command, KnobRequest):
                applied.append(command)
                engine.answer(
                    command,
                    KnobReply(source=engine.source, t_ns=time.monotonic_ns(), id=command.id, to=command.source,
                              ok=True, knob=command.knob, applied=command.value),
                )  # fmt: skip

    threading.Thread(target=run, daemon=True).start()
    return applied


def gpu_frame(peer: MqttPeer, watts: float, t_ns: int | None = None) -> GpuFrame:
    return GpuFrame(
        source=peer.source, t_ns=t_ns or time.monotonic_ns(), index=0, uuid="u", name="n", power_watts=watts
    )


def test_frames_reach_subscribers_in_order(broker: Broker, join: Join) -> None:
    probe, console = join(broker, "probe"), join(broker, "console")
    seen = console.subscribe([GpuFrame])
    until(lambda: probe.wanted(GpuFrame))
    for watts in range(200):
        probe.publish(gpu_frame(probe, float(watts)))
    got: list[float] = []
    until(lambda: got.extend(m.power_watts for m in seen.drain() if isinstance(m, GpuFrame)) or len(got) >= 200)
    assert got == [float(watts) for watts in range(200)]


def test_nobody_wants_a_kind_until_somebody_subscribes(broker: Broker, join: Join) -> None:
    engine, console = join(broker, "engine"), join(broker, "console")
    assert not engine.wanted(TokenFrame)
    tokens = console.subscribe([TokenFrame])
    until(lambda: engine.wanted(TokenFrame))
    tokens.close()
    until(lambda: not engine.wanted(TokenFrame))


def test_a_late_joiner_gets_the_last_retained_state(broker: Broker, join: Join) -> None:
    engine = join(broker, "engine")
    for depth in (1, 2, 3):
        engine.publish(KnobState(source=engine.source, t_ns=depth, knobs=Knobs(async_depth=depth)))
    time.sleep(0.3)
    console = join(broker, "console")
    message = console.subscribe([KnobState]).get(10)
    assert isinstance(message, KnobState)
    assert message.knobs.async_depth == 3
    again = console.subscribe([KnobState]).get(10)
    assert again == message, "a second subscription gets it from memory"


def test_a_command_is_answered_and_seen_by_watchers(broker: Broker, join: Join) -> None:
    engine, console, watcher = join(broker, "engine"), join(broker, "console"), join(broker, "console")
    applied = serve_knobs(engine)
    marks = watcher.subscribe([KnobRequest, KnobReply])
    until(lambda: len(engine._up.serves) and watcher.wanted(KnobReply))
    time.sleep(0.2)
    reply = console.request(knob_request(console, 1), 10)
    assert isinstance(reply, KnobReply)
    assert (reply.ok, reply.applied) == (True, 8)
    assert [command.id for command in applied] == ["k1"]
    seen: list[Message] = []
    until(lambda: seen.extend(marks.drain()) or len(seen) >= 2)
    assert [type(message) for message in seen] == [KnobRequest, KnobReply]


def test_a_command_that_nobody_serves_is_answered_at_once(broker: Broker, join: Join) -> None:
    console = join(broker, "console")
    reply = console.request(knob_request(console, 1), 10)
    assert (reply.ok, reply.reason) == (False, "nobody here serves knob_request")


def test_a_dead_peer_is_noticed(broker: Broker, join: Join, tmp_path: Path) -> None:
    console = join(broker, "console")
    goodbyes = console.subscribe([Goodbye])
    code = (
        "import sys, time\n"
        "from sessions.channel.mqtt.address import parse_broker\n"
        "from sessions.channel.mqtt.peer import connect_mqtt\n"
        f"connect_mqtt(parse_broker({broker.url()!r}), 'hostb-000002/engine/7', 'engine', 10)\n"
        "print('in', flush=True)\n"
        "time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"in\n"
    child.kill()
    killed = time.monotonic()
    farewell = goodbyes.get(10)
    assert time.monotonic() - killed < 3
    child.wait(10)
    assert isinstance(farewell, Goodbye)
    assert (farewell.peer, farewell.expected) == ("hostb-000002/engine/7", False)


def test_a_goodbye_is_told_and_clears_what_was_retained(broker: Broker, join: Join) -> None:
    engine, console = join(broker, "engine"), join(broker, "console")
    goodbyes = console.subscribe([Goodbye])
    engine.publish(KnobState(source=engine.source, t_ns=1, knobs=Knobs()))
    engine.publish(EngineState(source=engine.source, t_ns=2, phase="stopped"))
    time.sleep(0.3)
    engine.close("done")
    farewell = goodbyes.get(10)
    assert isinstance(farewell, Goodbye)
    assert (farewell.peer, farewell.reason, farewell.expected) == (engine.source, "done", True)
    late = join(broker, "console").subscribe([KnobState, EngineState])
    message = late.get(10)
    assert isinstance(message, EngineState), "the last state of an engine outlives it, its knobs do not"
    assert late.get(0.5) is None


def test_a_killed_broker_is_survived_without_losing_or_repeating_a_command(broker: Broker, join: Join) -> None:
    engine, console = join(broker, "engine"), join(broker, "console")
    applied = serve_knobs(engine)
    alerts = console.subscribe([Marker])
    frames = console.subscribe([GpuFrame])
    until(lambda: engine.wanted(GpuFrame))
    assert console.request(knob_request(console, 0), 10).ok
    broker.kill()
    replies: list[bool] = []

    def ask(number: int) -> None:
        replies.append(console.request(knob_request(console, number), 30).ok)

    askers = [threading.Thread(target=ask, args=(number,)) for number in range(1, 6)]
    for asker in askers:
        asker.start()
        engine.publish(gpu_frame(engine, 1.0))
        time.sleep(0.2)
    broker.start()
    back = time.monotonic()
    until(lambda: engine.connections == 2 and console.connections == 2)
    assert time.monotonic() - back < 2
    for asker in askers:
        asker.join(20)
    assert replies == [True] * 5
    assert sorted(command.id for command in applied) == [f"k{number}" for number in range(6)]
    engine.publish(gpu_frame(engine, 85.0))
    got: list[float | None] = []
    until(lambda: got.extend(m.power_watts for m in frames.drain() if isinstance(m, GpuFrame)) or 85.0 in got)
    texts = [message.text for message in alerts.drain() if isinstance(message, Marker)]
    assert any("is gone" in text for text in texts)
    assert any("is back after" in text for text in texts)


def test_a_repeated_command_is_applied_once_and_answered_again(broker: Broker, join: Join) -> None:
    engine, console = join(broker, "engine"), join(broker, "console")
    applied = serve_knobs(engine)
    time.sleep(0.3)
    command = knob_request(console, 1)
    assert console.request(command, 10).ok
    for _ in range(3):
        console._up.send_command(command)
    time.sleep(0.5)
    assert len(applied) == 1


def test_a_command_recorded_long_ago_is_not_obeyed(broker: Broker, join: Join) -> None:
    engine, console = join(broker, "engine"), join(broker, "console")
    applied = serve_knobs(engine)
    time.sleep(0.3)
    old = msgspec.structs.replace(knob_request(console, 1), t_ns=time.monotonic_ns() - 3600 * 10**9)
    reply = console.request(old, 10)
    assert (reply.ok, reply.reason) == (False, "this command is older than a minute")
    assert applied == []


def test_a_reader_that_is_too_slow_for_what_is_published_is_told_nothing_false(broker: Broker, join: Join) -> None:
    engine, console = join(broker, "engine"), join(broker, "console")
    queue = console.subscribe([QueueFrame], capacity=10)
    until(lambda: engine.wanted(QueueFrame))
    for number in range(500):
        engine.publish(
            QueueFrame(source=engine.source, t_ns=number, waiting=number, running=0, slots=[], in_flight=0,
                       kv_blocks_used=0, kv_blocks=0, output_tokens_total=0, prompt_tokens_total=0)
        )  # fmt: skip
    until(lambda: queue.dropped >= 490)
    assert [message.t_ns for message in queue.drain()] == list(range(490, 500))


def test_token_frames_come_once_though_the_broker_repeats_them(broker: Broker, join: Join) -> None:
    engine, console = join(broker, "engine"), join(broker, "console")
    tokens = console.subscribe([TokenFrame])
    until(lambda: engine.wanted(TokenFrame))
    frame = TokenFrame(source=engine.source, t_ns=5, events=[TokenEvent("r1", [1])])
    engine.publish(frame)
    engine.publish(frame)
    engine.publish(msgspec.structs.replace(frame, t_ns=6))
    seen: list[Message] = []
    until(lambda: seen.extend(tokens.drain()) or len(seen) >= 2)
    assert [message.t_ns for message in seen] == [5, 6]


# --- security -----------------------------------------------------------------------------------------------------


def test_with_tls_and_acl_an_operator_turns_knobs_and_a_viewer_only_watches(secured_broker: Broker, join: Join) -> None:
    engine = join(secured_broker, "engine", user="engine")
    operator = join(secured_broker, "console", user="operator")
    viewer = join(secured_broker, "console", user="viewer")
    applied = serve_knobs(engine)
    states = viewer.subscribe([KnobState])
    time.sleep(0.3)
    assert operator.request(knob_request(operator, 1), 10).ok
    engine.publish(KnobState(source=engine.source, t_ns=1, knobs=Knobs(async_depth=8)))
    state = states.get(10)
    assert isinstance(state, KnobState)
    assert state.knobs.async_depth == 8
    refused = viewer.request(knob_request(viewer, 2), 10)
    assert not refused.ok
    assert "does not let this user turn knobs" in refused.reason
    assert [command.id for command in applied] == ["k1"]


def test_a_wrong_password_is_named(secured_broker: Broker) -> None:
    address = parse_broker(secured_broker.url("viewer"), ca_file=secured_broker.ca)
    address = msgspec.structs.replace(address, password=Password("wrong"))
    with pytest.raises(ChannelError, match=r"(?i)not authori[sz]ed|bad user"):
        connect_mqtt(address, "h/console/1", "console", 3)


def test_a_broker_with_an_unknown_certificate_is_not_trusted(secured_broker: Broker) -> None:
    address = msgspec.structs.replace(parse_broker(secured_broker.url("viewer")), password=Password("viewerviewer"))
    with pytest.raises(ChannelError, match="certificate"):
        connect_mqtt(address, "h/console/1", "console", 3)


def test_an_engine_obeys_nobody_at_an_open_broker_elsewhere(broker: Broker, join: Join) -> None:
    engine, console = join(broker, "engine"), join(broker, "console")
    applied = serve_knobs(engine)
    elsewhere = msgspec.structs.replace(engine._address, host="broker.example")
    engine._address = elsewhere
    time.sleep(0.3)
    reply = console.request(knob_request(console, 1), 10)
    assert not reply.ok
    assert "asks nobody for a password" in reply.reason
    assert applied == []
    engine._address = msgspec.structs.replace(elsewhere, allow_open_commands=True)
    assert console.request(knob_request(console, 2), 10).ok


def test_hostile_packets_crash_nothing_and_turn_no_knob(broker: Broker, join: Join) -> None:
    engine, console = join(broker, "engine"), join(broker, "console")
    applied = serve_knobs(engine)
    seen = console.subscribe([GpuFrame, KnobState, TokenFrame, Marker])
    time.sleep(0.3)
    attacker = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="attacker", protocol=paho.MQTTv5)
    attacker.max_queued_messages_set(0)
    attacker.connect("127.0.0.1", broker.port)
    attacker.loop_start()
    base = engine._topics.base
    rng = random.Random(7)
    good = encode(knob_request(console, 99))
    engine_level, console_level = (encoded(peer.source) for peer in (engine, console))
    topics = [
        f"{base}/cmd/knob_request/evil",
        f"{base}/pub/evil/gpu_frame",
        f"{base}/pub/evil/hello",
        f"{base}/interest/evil",
        f"{base}/ping/{engine_level}/evil",
        f"{base}/pong/{engine_level}/evil",
        f"{base}/serve/knob_request/evil",
        f"{base}/reply/{console_level}/evil",
    ]
    for number in range(10_000):
        match number % 5:
            case 0:
                payload = rng.randbytes(rng.randrange(200))
            case 1:
                payload = b"\x91" * 2000 + b"\xc0"
            case 2:
                payload = b"\xdd\xff\xff\xff\xff" + rng.randbytes(20)
            case 3:
                payload = b"\x91" + good
            case _:
                payload = msgspec.msgpack.encode([{"kind": rng.choice(["gpu_frame", "nonsense", 7]), "t_ns": "x"}])
        attacker.publish(topics[number % len(topics)], payload, qos=0)
    attacker.publish(f"{base}/cmd/knob_request/end", b"", qos=1).wait_for_publish(20)
    attacker.loop_stop()
    attacker.disconnect()
    assert console.request(knob_request(console, 1), 20).ok
    assert [command.id for command in applied] == ["k1"]
    assert engine.rejected["malformed"] > 1000
    assert engine.rejected["source or kind is not the topic's"] > 100
    assert all(not isinstance(message, GpuFrame) for message in seen.drain())


# --- clocks -------------------------------------------------------------------------------------------------------


def test_clocks_of_other_hosts_are_compared_and_their_messages_put_on_ours(broker: Broker, join: Join) -> None:
    console = join(broker, "console", host="hosta-000001")
    probe = join(broker, "probe", host="hostb-000002")
    seen = console.subscribe([GpuFrame])
    until(lambda: probe.wanted(GpuFrame))
    until(lambda: "hostb-000002" in console.clock_offsets() and console.clock_offsets()["hostb-000002"].error_ns < 5e7)
    offset = console.clock_offsets()["hostb-000002"]
    assert abs(offset.offset_ns) <= offset.error_ns + 1_000_000, "both processes share one clock here"
    probe.publish(gpu_frame(probe, 1.0))
    frame = seen.get(10)
    assert frame is not None
    assert abs(frame.t_ns - time.monotonic_ns()) < 2e9


def test_no_answer_in_time_is_said(broker: Broker, join: Join) -> None:
    engine, console = join(broker, "engine"), join(broker, "console")
    engine.serve([KnobRequest])
    time.sleep(0.3)
    with pytest.raises(RequestTimeout, match="no reply to KnobRequest within 1 s"):
        console.request(knob_request(console, 1), 1.0)
