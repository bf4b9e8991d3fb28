"""The driver as a real process: serving, failing, and ending however it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine.config import ConfigError, EngineConfig
from engine.launch import EngineProcess, EngineStartError
from sessions.channel.interface import Channel
from sessions.channel.unix import connect_unix
from sessions.knobs import Knobs
from sessions.messages import (
    EngineState,
    Fault,
    Finished,
    KnobReply,
    KnobRequest,
    KnobState,
    LogLines,
    Message,
    QueueFrame,
    Reply,
    RequestSpec,
    SessionHeader,
    StopEngine,
    SubmitRequests,
    TokenFrame,
)

from ..scheduler.model import expected_output

MODULE = "tests.engine.driver.process"
TIMEOUT_S = 20.0


ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def tests_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver does not look for modules where it was started, and the tests are not installed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def start(model: str = "model", **options: object) -> EngineProcess:
    config = EngineConfig(model=model, knobs=Knobs(async_depth=2), **options)  # type: ignore[arg-type]
    return EngineProcess.start(config, module=MODULE)


@pytest.fixture
def engine() -> Iterator[EngineProcess]:
    process = start()
    try:
        process.wait_ready(TIMEOUT_S)
        yield process
    finally:
        process.stop(5)


@pytest.fixture
def channel(engine: EngineProcess) -> Iterator[Channel]:
    peer = connect_unix(engine.socket, "test/1", "cli", TIMEOUT_S)
    yield peer
    peer.close()


def submit(channel: Channel, specs: list[RequestSpec]) -> Reply:
    command = SubmitRequests(source=channel.source, t_ns=time.monotonic_ns(), id=specs[0].id, requests=specs)
    return channel.request(command, TIMEOUT_S)


def worker_pid(state: EngineState) -> int:
    return state.ranks[1].pid


def gone(pid: int, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def exit_code(engine: EngineProcess, timeout_s: float = 5.0) -> int | None:
    deadline = time.monotonic() + timeout_s
    while engine.exit_code is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return engine.exit_code


def read_until(subscription: object, kind: type[Message], timeout_s: float = TIMEOUT_S) -> Message:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        message = subscription.get(0.2)  # type: ignore[attr-defined]
        if isinstance(message, kind):
            return message
    raise AssertionError(f"no {kind.__name__} in {timeout_s} s")


def test_tokens_knobs_and_frames_over_the_channel(channel: Channel) -> None:
    tokens = channel.subscribe([TokenFrame])
    frames = channel.subscribe([QueueFrame])
    retained = channel.subscribe([SessionHeader, EngineState, KnobState])
    kinds = {type(retained.get(5)) for _ in range(3)}
    assert kinds == {SessionHeader, EngineState, KnobState}
    specs = [RequestSpec(f"r{i}", [i, 2], 20, ignore_eos=True) for i in range(6)]
    assert submit(channel, specs).ok
    knob = KnobRequest(source=channel.source, t_ns=0, id="k", knob="async_depth", value="4")
    reply = channel.request(knob, TIMEOUT_S)
    assert isinstance(reply, KnobReply) and reply.ok and reply.applied == 4
    knob = KnobRequest(source=channel.source, t_ns=0, id="g", knob="cuda_graphs", value="on")
    reply = channel.request(knob, TIMEOUT_S)
    assert isinstance(reply, KnobReply) and not reply.ok and "no CUDA device" in reply.reason
    streams: dict[str, list[int]] = {}
    ends: dict[str, Finished] = {}
    while len(ends) < 6:
        frame = read_until(tokens, TokenFrame)
        assert isinstance(frame, TokenFrame)
        for event in frame.events:
            streams.setdefault(event.request, []).extend(event.tokens)
        ends |= {end.request: end for end in frame.finished}
    for spec in specs:
        assert isinstance(spec.prompt, list)
        assert streams[spec.id] == expected_output(spec.prompt, 20, True)
    assert read_until(frames, QueueFrame)


def test_text_is_refused_with_the_reason_when_there_is_no_tokenizer(channel: Channel) -> None:
    tokens = channel.subscribe([TokenFrame])
    assert submit(channel, [RequestSpec("r", "text", 4)]).ok
    frame = read_until(tokens, TokenFrame)
    assert isinstance(frame, TokenFrame)
    assert frame.finished[0].reason == "refused" and "tokenizer.json" in frame.finished[0].detail


def test_requests_of_an_asker_that_is_gone_are_cancelled(engine: EngineProcess, channel: Channel) -> None:
    tokens = channel.subscribe([TokenFrame])
    other = connect_unix(engine.socket, "test/2", "load", TIMEOUT_S)
    assert submit(other, [RequestSpec("theirs", [1], 2000, ignore_eos=True)]).ok
    other.close()
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        frame = read_until(tokens, TokenFrame)
        assert isinstance(frame, TokenFrame)
        if frame.finished:
            assert (frame.finished[0].request, frame.finished[0].reason) == ("theirs", "cancelled")
            return
    raise AssertionError("the request was not cancelled")


def test_an_idle_driver_does_not_spin(engine: EngineProcess) -> None:
    process = psutil.Process(engine.pid)
    before = sum(process.cpu_times()[:2])
    time.sleep(1.0)
    assert sum(process.cpu_times()[:2]) - before < 0.3


def test_stop_engine(engine: EngineProcess, channel: Channel) -> None:
    assert channel.request(StopEngine(source=channel.source, t_ns=0, id="s"), TIMEOUT_S).ok
    assert gone(engine.pid, 5)
    assert exit_code(engine) == 0
    assert not engine.socket.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_driver_and_workers(number: signal.Signals) -> None:
    engine = start()
    worker = worker_pid(engine.wait_ready(TIMEOUT_S))
    os.kill(engine.pid, number)
    assert gone(engine.pid, 5) and gone(worker, 1)
    assert exit_code(engine) == 0
    assert not engine.socket.exists()


def test_live_requests_are_told_that_the_engine_stops(engine: EngineProcess, channel: Channel) -> None:
    tokens = channel.subscribe([TokenFrame])
    assert submit(channel, [RequestSpec("r", [1], 3000, ignore_eos=True)]).ok
    os.kill(engine.pid, signal.SIGTERM)
    while True:
        frame = read_until(tokens, TokenFrame)
        assert isinstance(frame, TokenFrame)
        if frame.finished:
            break
    assert frame.finished[0].reason == "cancelled" and "stopping" in frame.finished[0].detail


def test_a_signal_while_loading_ends_at_once() -> None:
    engine = start("slow")
    channel = connect_unix(engine.socket, "test/1", "cli", TIMEOUT_S)
    refused = submit(channel, [RequestSpec("r", [1], 4)])
    assert not refused.ok and "loading" in refused.reason
    assert channel.request(StopEngine(source=channel.source, t_ns=0, id="s"), TIMEOUT_S).ok
    assert gone(engine.pid, 5)
    assert exit_code(engine) == 0


def test_a_refused_configuration_is_told_in_one_line() -> None:
    engine = start("refused")
    with pytest.raises(EngineStartError) as caught:
        engine.wait_ready(TIMEOUT_S)
    lines = str(caught.value).splitlines()
    assert lines[0] == "load: pp: 9 stages for 4 layers: choose at most 4"
    assert any("loads refused" in line for line in lines)
    assert gone(engine.pid, 10)
    assert exit_code(engine) == 2


def test_our_own_mistake_is_a_fault_with_the_traceback_in_the_log_alone() -> None:
    engine = start("broken")
    with pytest.raises(EngineStartError, match="driver: RuntimeError: a mistake of ours"):
        engine.wait_ready(TIMEOUT_S)
    assert engine.stop() in (0, 1)
    assert any("Traceback" in line for line in engine.last_lines(200))


def test_requests_learn_of_our_own_mistake() -> None:
    engine = start("breaks later")
    try:
        engine.wait_ready(TIMEOUT_S)
        channel = connect_unix(engine.socket, "test/1", "cli", TIMEOUT_S)
        tokens = channel.subscribe([TokenFrame])
        faults = channel.subscribe([Fault])
        assert submit(channel, [RequestSpec("r", [1], 4)]).ok
        frame, fault = read_until(tokens, TokenFrame), read_until(faults, Fault)
        assert isinstance(frame, TokenFrame) and frame.finished[0].reason == "failed"
        assert isinstance(fault, Fault) and fault.cause == "RuntimeError: a later mistake"
        channel.close()
    finally:
        engine.stop()


def test_a_worker_that_is_killed_is_named_with_its_cause(engine: EngineProcess, channel: Channel) -> None:
    messages = channel.subscribe([Fault, EngineState, TokenFrame, LogLines])
    assert submit(channel, [RequestSpec("r", [1], 3000, ignore_eos=True)]).ok
    state = read_until(messages, EngineState)
    assert isinstance(state, EngineState)
    os.kill(worker_pid(state), signal.SIGKILL)
    seen: dict[type[Message], Message] = {}
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and EngineState not in seen:
        message = messages.get(0.2)
        if message is not None and not (isinstance(message, TokenFrame) and not message.finished):
            seen[type(message)] = message
    fault = seen[Fault]
    assert isinstance(fault, Fault)
    assert (fault.rank, fault.signal, fault.last_log) == (1, "SIGKILL", ["the last line"])
    frame = seen[TokenFrame]
    assert isinstance(frame, TokenFrame) and frame.finished[0].reason == "failed"
    late = connect_unix(engine.socket, "test/late", "console", TIMEOUT_S)
    assert isinstance(read_until(late.subscribe([Fault]), Fault), Fault)
    late.close()
    assert gone(engine.pid, 10)
    assert exit_code(engine) == 1


@pytest.mark.parametrize("model", ["model", "slow"])
def test_nothing_is_left_when_the_parent_is_killed(model: str, tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from engine.launch import EngineProcess;"
        "from engine.config import EngineConfig;"
        "e = EngineProcess.start(EngineConfig(model=sys.argv[1]), socket=Path(sys.argv[2]), module=sys.argv[3]);"
        "sys.argv[1] == 'slow' or e.wait_ready(20);"
        "print(e.pid, flush=True); time.sleep(60)"
    )
    socket = tmp_path / "engine.sock"
    command = [sys.executable, "-c", code, model, str(socket), MODULE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        driver = int(parent.stdout.readline())
        if model == "slow":
            connect_unix(socket, "test/1", "cli", TIMEOUT_S).close()
        workers = [child.pid for child in psutil.Process(driver).children(recursive=True)]
        assert len(workers) == (1 if model == "model" else 0)
        parent.kill()
        left = [pid for pid in (driver, *workers) if not gone(pid, 2.0)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left
    assert not socket.exists()


def test_numbers_out_of_range_are_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="token_budget must be 1 or more, not 0"):
        start(token_budget=0)
    with pytest.raises(ConfigError, match="async_depth must be a whole number from 1 to 64, not 65"):
        EngineProcess.start(EngineConfig(model="model", knobs=Knobs(async_depth=65)))
    with pytest.raises(ConfigError, match="memory_fraction"):
        start(memory_fraction=1.5)


def test_modules_of_the_folder_it_was_started_in_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    engine = start()
    try:
        assert engine.wait_ready(TIMEOUT_S).phase == "ready"
    finally:
        engine.stop(5)


def test_a_configuration_that_is_not_one_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "engine.driver", "--socket", str(tmp_path / "s"), "--config", '{"modle": "x"}']
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2
    assert done.stderr.startswith("error: engine configuration: ")
    assert "modle" in done.stderr and len(done.stderr.splitlines()) == 1
