"""The benchmark against an engine over a real Unix socket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.bench.channel_target import ChannelTarget
from sessions.bench.runner import run_bench
from sessions.bench.target import TargetLost
from sessions.channel.unix import connect_unix
from sessions.load.lengths import Lengths
from sessions.load.workload import LoadPoint, Workload
from tests.sessions.load.small_engine import SmallEngine

WORKLOAD = Workload(prompt_tokens=Lengths(2, 2), output_tokens=Lengths(20, 20))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SmallEngine]:
    engine = SmallEngine(tmp_path / "s")
    yield engine
    engine.close()


@pytest.fixture
def target(engine: SmallEngine, tmp_path: Path) -> Iterator[ChannelTarget]:
    peer = connect_unix(tmp_path / "s", "host-abc/bench/2", "bench", 5)
    yield ChannelTarget(peer, 5)
    peer.close()


def test_a_live_engine_is_measured(engine, target):
    result = run_bench(target, WORKLOAD, [LoadPoint(concurrency=4)])
    (point,) = result.points
    assert point.requests.finished == 20 and point.output_tokens_per_s > 0
    assert engine.submissions[0] == 4
    assert 0 < point.occupancy[0] <= 1
    assert point.ttft_ms.p50 < point.e2e_ms.p50
    assert len(point.outputs_digest) == 64


def test_a_knob_turns_and_the_new_state_is_known(target):
    assert target.turn("async_depth", 5).applied == 5
    target.advance(target.clock.now_ns() + 10**9)
    assert target.knobs.knobs.async_depth == 5


def test_two_targets_of_one_peer_do_not_get_each_others_answers(engine, tmp_path):
    peer = connect_unix(tmp_path / "s", "host-abc/bench/2", "bench", 5)
    for depth in (3, 4):
        assert ChannelTarget(peer, 5).turn("async_depth", depth).applied == depth
    peer.close()


def test_a_fault_ends_the_benchmark_with_its_cause(engine, target):
    endless = Workload(output_tokens=Lengths(10**6, 10**6))
    timer = threading.Timer(0.2, engine.fail)
    timer.start()
    with pytest.raises(TargetLost, match="rank 0 died: signal SIGKILL"):
        run_bench(target, endless, [LoadPoint(concurrency=2)])
    timer.join()


def test_an_engine_that_is_not_ready_in_time_is_named(tmp_path):
    from sessions.channel.unix import UnixHub

    hub = UnixHub(tmp_path / "t", "h/engine/1", "engine")
    peer = connect_unix(tmp_path / "t", "h/bench/2", "bench", 5)
    with pytest.raises(TargetLost, match="not ready after"):
        ChannelTarget(peer, 0.3)
    peer.close()
    hub.close()
