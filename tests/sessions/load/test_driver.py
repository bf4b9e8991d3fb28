"""The load driver against a small engine over a real Unix socket."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.channel.interface import ChannelError
from sessions.channel.unix import connect_unix
from sessions.load.driver import LoadDriver
from sessions.load.lengths import Lengths
from sessions.load.mooncake import Scaling
from sessions.load.workload import LoadPoint, Workload
from sessions.messages import LoadRequest, LoadState

from .small_engine import MODEL, SmallEngine

SHORT = Workload(prompt_tokens=Lengths(2, 4), output_tokens=Lengths(2, 6))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SmallEngine]:
    engine = SmallEngine(tmp_path / "s")
    yield engine
    engine.close()


@pytest.fixture
def peer(engine: SmallEngine, tmp_path: Path):
    peer = connect_unix(tmp_path / "s", "host-abc/load/2", "load", 5)
    yield peer
    peer.close()


def drive(driver: LoadDriver, seconds: float) -> None:
    timer = threading.Timer(seconds, driver.stop)
    timer.start()
    driver.run()
    timer.join()


def until(condition, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_stopped_load_accounts_for_every_request(engine, peer):
    driver = LoadDriver(peer, SHORT, LoadPoint(concurrency=7), MODEL.vocab)
    drive(driver, 0.5)
    accounts = driver.accounts
    assert engine.submissions[0] == 7
    assert accounts.finished > 7
    assert not accounts.live and accounts.submitted == sum(accounts.ends.values()) == sum(engine.submissions)


def test_concurrency_and_rate_change_while_it_runs(engine, peer, tmp_path):
    driver = LoadDriver(peer, SHORT, LoadPoint(concurrency=2), MODEL.vocab)
    thread = threading.Thread(target=driver.run)
    thread.start()
    console = connect_unix(tmp_path / "s", "host-abc/console/3", "console", 5)
    states = console.subscribe((LoadState,))
    ids = iter(range(100))

    def ask(**fields):
        command = LoadRequest(source=console.source, t_ns=time.monotonic_ns(), id=str(next(ids)), **fields)
        return console.request(command, 5)

    until(lambda: driver.accounts.submitted > 2)
    assert ask(concurrency=9).ok
    until(lambda: len(driver.accounts.live) == 9)
    assert ask(concurrency=0).ok
    until(lambda: not driver.accounts.live)
    assert ask(rate=200.0).ok
    submitted = driver.accounts.submitted
    until(lambda: driver.accounts.submitted > submitted + 20)
    assert "negative" in ask(rate=-1.0).reason
    assert "either" in ask().reason
    driver.stop()
    thread.join(5)
    seen: list[LoadState] = []
    until(lambda: seen.extend(states.drain()) or seen[-1].submitted_total == driver.accounts.submitted)
    assert seen[-1].rate == 200.0 and seen[-1].concurrency is None
    console.close()


def test_a_refusing_engine_is_not_hammered(engine, peer):
    engine.shut.set()
    driver = LoadDriver(peer, SHORT, LoadPoint(concurrency=3), MODEL.vocab)
    drive(driver, 1.0)
    assert 3 <= driver.accounts.ends["refused"] <= 3 * 6
    assert driver.accounts.reasons.keys() == {"refused: the engine is switching"}


def test_a_trace_ends_by_itself_with_every_request_accounted_for(engine, peer, tmp_path):
    path = tmp_path / "trace.jsonl"
    rows = [f'{{"timestamp":{i * 40},"input_length":{4 if i % 3 else 2000},"output_length":3}}' for i in range(30)]
    path.write_text("\n".join(rows))
    driver = LoadDriver(
        peer, Workload(source="mooncake", file=str(path), scaling=Scaling(speed=10.0)), LoadPoint(), MODEL.vocab
    )
    accounts = driver.run()
    assert (accounts.submitted, accounts.finished, accounts.ends["refused"]) == (30, 20, 10)
    assert accounts.reasons == {"refused: prompt too long": 10}
    assert accounts.summary() == "30 submitted, 20 finished, 10 refused"


def test_an_engine_that_goes_away_ends_the_load_with_the_reason(engine, peer):
    driver = LoadDriver(peer, SHORT, LoadPoint(concurrency=2), MODEL.vocab)
    timer = threading.Timer(0.2, engine.close)
    timer.start()
    with pytest.raises(ChannelError):
        driver.run()
    timer.join()
