"""Latency of 1 KB messages from a hub to a peer process, and what publishing costs the publisher."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from sessions.channel.unix import UnixHub
from sessions.messages import Marker, Span, StageFrame

pytestmark = pytest.mark.benchmark

READER = """
import sys, time
from sessions.channel.unix import connect_unix
from sessions.messages import Marker, StageFrame
peer = connect_unix(sys.argv[1], "reader", "console", 10)
sub = peer.subscribe([StageFrame, Marker], capacity=100_000)
print("ready", flush=True)
taken = []
while isinstance(message := sub.get(30), StageFrame):
    taken.append((time.monotonic_ns() - message.t_ns) / 1e6)
taken.sort()
print(f"p50 {taken[len(taken) // 2]:.3f} ms  p99 {taken[int(len(taken) * 0.99)]:.3f} ms  n {len(taken)}", flush=True)
"""


def stage_frame() -> StageFrame:
    """About 1 KB: 20 spans."""
    spans = [Span(1, 100_000 + n, 8, 0, n * 500_000, n * 500_000 + 70_000, n * 500_000 + 90_000,
                  n * 500_000 + 480_000, n * 500_000 + 490_000, 30_000, True) for n in range(20)]  # fmt: skip
    return StageFrame(
        source="host-abc/engine/1", t_ns=time.monotonic_ns(), stage=0, rank=0, window_ns=10**8, spans=spans
    )


@pytest.mark.parametrize("rate", [200, 2000])
def test_latency_and_publish_cost(tmp_path: Path, rate: int) -> None:
    hub = UnixHub(tmp_path / "s", "hub", "engine")
    reader = subprocess.Popen([sys.executable, "-c", READER, str(hub.path)], stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    reader.stdout.readline()
    while not hub.wanted(StageFrame):
        time.sleep(0.01)
    costs = []
    due = time.monotonic()
    for _ in range(rate * 4):
        due += 1 / rate
        time.sleep(max(0.0, due - time.monotonic()))
        frame = stage_frame()
        before = time.perf_counter_ns()
        hub.publish(frame)
        costs.append((time.perf_counter_ns() - before) / 1e3)
    hub.publish(Marker(source="hub", t_ns=1, category="note", text="end"))
    costs.sort()
    print(f"\nunix socket at {rate}/s: {reader.stdout.readline().strip()}")
    print(f"publish with one reader: p50 {costs[len(costs) // 2]:.1f} us  p99 {costs[int(len(costs) * 0.99)]:.1f} us")
    reader.wait(10)
    hub.close()
    assert len(costs) == rate * 4


def test_publish_cost_without_a_reader(tmp_path: Path) -> None:
    hub = UnixHub(tmp_path / "s", "hub", "engine")
    frame = stage_frame()
    before = time.perf_counter_ns()
    for _ in range(100_000):
        hub.publish(frame)
    print(f"\npublish without a reader: {(time.perf_counter_ns() - before) / 1e8:.3f} us")
    hub.close()
    assert not hub.wanted(StageFrame)
