"""From an engine's frame to a console's store through a real broker on loopback, and what a stuck console costs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sessions.channel.mqtt.address import parse_broker
from sessions.channel.mqtt.peer import MqttPeer, connect_mqtt
from sessions.messages import QueueFrame, SlotSize
from tests.brokers import MOSQUITTO, Broker
from tui.console.store.store import Store

RATE_HZ = 100
SECONDS = 10

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed"),
    pytest.mark.timeout(180),
]

STUCK_CONSOLE = """
import sys, time
from sessions.channel.mqtt.address import parse_broker
from sessions.channel.mqtt.peer import connect_mqtt
from sessions.messages import QueueFrame
peer = connect_mqtt(parse_broker(sys.argv[1]), "hostc-000003/console/9", "console", 20)
peer.subscribe([QueueFrame])
print("in", flush=True)
time.sleep(600)
"""


def frame(engine: MqttPeer, number: int) -> QueueFrame:
    """About a kilobyte, as a deployment of 64 slots sends it."""
    return QueueFrame(
        source=engine.source,
        t_ns=time.monotonic_ns(),
        waiting=number,
        running=512,
        slots=[SlotSize(8, 1, True)] * 200,
        in_flight=64,
        kv_blocks_used=1000,
        kv_blocks=4000,
        output_tokens_total=number,
        prompt_tokens_total=number,
    )


def latencies(engine: MqttPeer, console: MqttPeer) -> list[float]:
    """Milliseconds from making a frame to its being in the store, one a frame."""
    store, frames = Store(), console.subscribe([QueueFrame])
    deadline = time.monotonic() + 10
    while not engine.wanted(QueueFrame):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    taken: list[float] = []
    due = time.monotonic()
    for number in range(RATE_HZ * SECONDS):
        engine.publish(frame(engine, number))
        message = frames.get(5.0)
        assert message is not None
        store.apply([message])
        taken.append((time.monotonic_ns() - message.t_ns) / 1e6)
        due += 1 / RATE_HZ
        time.sleep(max(0.0, due - time.monotonic()))
    frames.close()
    return sorted(taken)


def report(name: str, taken: list[float]) -> None:
    middle, tail = taken[len(taken) // 2], taken[int(len(taken) * 0.99)]
    print(f"\n{name}: p50 {middle:.2f} ms  p99 {tail:.2f} ms of {len(taken)} frames (aim 3 and 10)")


def test_frame_to_store_with_and_without_a_stuck_console(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    address = parse_broker(broker.url())
    engine = connect_mqtt(address, "hosta-000001/engine/1", "engine", 10)
    console = connect_mqtt(address, "hosta-000001/console/2", "console", 10)
    report("mosquitto, 1 KB frames at 100/s", latencies(engine, console))
    stuck = subprocess.Popen([sys.executable, "-c", STUCK_CONSOLE, broker.url()], stdout=subprocess.PIPE)
    assert stuck.stdout is not None
    assert stuck.stdout.readline() == b"in\n"
    stuck.send_signal(signal.SIGSTOP)
    report("the same with a console that is stopped", latencies(engine, console))
    assert engine.dropped == 0
    stuck.kill()
    stuck.wait(10)
    engine.close()
    console.close()
    broker.kill()
