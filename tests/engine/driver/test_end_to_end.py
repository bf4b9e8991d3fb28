"""The driver over real workers: a checkpoint split over two stages, knobs turned meanwhile, deaths."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from engine.checkpoint.tiny import write_tiny_checkpoint
from engine.config import EngineConfig
from engine.launch import EngineProcess
from sessions.channel.interface import Channel
from sessions.channel.unix import connect_unix
from sessions.knobs import ADMISSIONS, KnobName, Knobs, KnobValue
from sessions.messages import (
    EngineState,
    Fault,
    Finished,
    KnobReply,
    KnobRequest,
    QueueFrame,
    RequestSpec,
    StageFrame,
    SubmitRequests,
    TokenFrame,
)

READY_S = 90.0


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_tiny_checkpoint(folder, "qwen3-moe", seed=3, layers=4)
    return folder


def config_for(checkpoint: Path) -> EngineConfig:
    knobs = Knobs(async_depth=1)
    return EngineConfig(model=str(checkpoint), pp=2, ep=2, device="cpu", kv_blocks=64, block_size=8, knobs=knobs)


@pytest.fixture(scope="module")
def engine(checkpoint: Path) -> Iterator[EngineProcess]:
    process = EngineProcess.start(config_for(checkpoint))
    try:
        process.wait_ready(READY_S)
        yield process
    finally:
        process.stop()


@pytest.fixture
def channel(engine: EngineProcess) -> Iterator[Channel]:
    peer = connect_unix(engine.socket, f"test/{time.monotonic_ns()}", "cli", 20)
    yield peer
    peer.close()


class Generation:
    """Requests submitted at one instant, and what has come of them."""

    def __init__(self, channel: Channel, specs: list[RequestSpec]) -> None:
        self.streams: dict[str, list[int]] = {spec.id: [] for spec in specs}
        self.texts: dict[str, str] = dict.fromkeys(self.streams, "")
        self.ends: dict[str, Finished] = {}
        self._frames = channel.subscribe([TokenFrame])
        command = SubmitRequests(source=channel.source, t_ns=time.monotonic_ns(), id=specs[0].id, requests=specs)
        assert channel.request(command, 20).ok

    def read(self, timeout_s: float = 20.0) -> bool:
        """Take in one frame; False when all requests have ended."""
        if len(self.ends) == len(self.streams):
            self._frames.close()
            return False
        frame = self._frames.get(timeout_s)
        assert isinstance(frame, TokenFrame), "no tokens"
        for event in frame.events:
            self.streams[event.request] += event.tokens
            self.texts[event.request] += event.text
        self.ends |= {end.request: end for end in frame.finished}
        return True

    def run(self) -> Generation:
        while self.read():
            pass
        return self


def specs(prefix: str) -> list[RequestSpec]:
    draw = random.Random(1)
    prompts = [[draw.randrange(256) for _ in range(draw.randint(2, 30))] for _ in range(12)]
    return [RequestSpec(f"{prefix}{i}", prompt, 24, ignore_eos=True) for i, prompt in enumerate(prompts)]


def turn(channel: Channel, knob: KnobName, value: KnobValue) -> KnobReply:
    now = time.monotonic_ns()
    reply = channel.request(KnobRequest(source=channel.source, t_ns=now, id=f"{now}", knob=knob, value=value), 60)
    assert isinstance(reply, KnobReply)
    return reply


@pytest.fixture(scope="module")
def serial(engine: EngineProcess) -> list[list[int]]:
    """Every request's tokens when it runs alone."""
    peer = connect_unix(engine.socket, "test/serial", "cli", 20)
    streams = [Generation(peer, [spec]).run().streams[spec.id] for spec in specs("alone")]
    peer.close()
    return streams


def test_tokens_are_those_of_a_lone_run_while_every_knob_is_turned(channel: Channel, serial: list[list[int]]) -> None:
    draw = random.Random(2)
    turns: list[tuple[KnobName, KnobValue]] = [("admission", name) for name in ADMISSIONS]
    turns += [("async_depth", 4), ("async_depth", 8), ("max_micro_batch", 3), ("max_micro_batch", 64)]
    turns += [("parallelism", "ep"), ("parallelism", "pp")]
    draw.shuffle(turns)
    spans = channel.subscribe([StageFrame])
    queues = channel.subscribe([QueueFrame])
    generation = Generation(channel, specs("together"))
    while generation.read():
        if turns and draw.random() < 0.4:
            reply = turn(channel, *turns.pop())
            assert reply.ok, reply.reason
    assert list(generation.streams.values()) == serial
    assert {end.reason for end in generation.ends.values()} == {"length"}
    time.sleep(0.3)
    assert {frame.stage for frame in spans.drain() if isinstance(frame, StageFrame)} == {0, 1}
    last = queues.drain()[-1]
    assert isinstance(last, QueueFrame) and (last.running, last.kv_blocks_used) == (0, 0)


def test_text_and_stop_strings(channel: Channel) -> None:
    free = Generation(channel, [RequestSpec("free", "Hello", 40, ignore_eos=True)]).run()
    text = free.texts["free"]
    stop = text[10:12]
    stopped = Generation(channel, [RequestSpec("stopped", "Hello", 40, stop=[stop], ignore_eos=True)]).run()
    assert stopped.texts["stopped"] == text[: text.index(stop)]
    assert stopped.ends["stopped"].reason == "stop"
    assert stopped.ends["stopped"].output_tokens < 40


def test_cuda_graphs_are_unavailable_without_a_gpu(channel: Channel) -> None:
    reply = turn(channel, "cuda_graphs", True)
    assert not reply.ok and "unavailable" in reply.reason and reply.applied is False


def test_a_killed_rank_is_named_and_a_new_engine_works(channel: Channel, engine: EngineProcess) -> None:
    """The last test with this engine."""
    messages = channel.subscribe([EngineState, Fault, TokenFrame])
    state = messages.get(5)
    assert isinstance(state, EngineState)
    command = SubmitRequests(
        source=channel.source, t_ns=0, id="last", requests=[RequestSpec("last", [1], 400, ignore_eos=True)]
    )
    assert channel.request(command, 20).ok
    ranks = {rank.rank: rank.pid for rank in state.ranks}
    os.kill(ranks[1], signal.SIGKILL)
    fault, failed = None, None
    deadline = time.monotonic() + 30
    while failed is None and time.monotonic() < deadline:
        message = messages.get(0.5)
        if isinstance(message, Fault):
            fault = message
        if isinstance(message, EngineState) and message.phase == "failed":
            failed = message
    assert fault is not None and failed is not None
    assert (fault.rank, fault.signal) == (1, "SIGKILL")
    assert fault.restartable
    deadline = time.monotonic() + 15
    while engine.exit_code is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert engine.exit_code == 1
    assert not any(psutil.pid_exists(pid) for pid in ranks.values())


def test_nothing_is_left_of_real_workers_when_the_parent_is_killed(checkpoint: Path, tmp_path: Path) -> None:
    code = (
        "import sys, time, msgspec; from pathlib import Path; from engine.launch import EngineProcess;"
        "from engine.config import EngineConfig;"
        "e = EngineProcess.start(msgspec.json.decode(sys.argv[1], type=EngineConfig), socket=Path(sys.argv[2]));"
        "e.wait_ready(90); print(e.pid, flush=True); time.sleep(60)"
    )
    config = msgspec.json.encode(config_for(checkpoint)).decode()
    command = [sys.executable, "-c", code, config, str(tmp_path / "s")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        driver = psutil.Process(int(parent.stdout.readline()))
        family = [driver, *driver.children(recursive=True)]
        assert len(family) >= 3
        parent.kill()
        _, alive = psutil.wait_procs(family, timeout=2.0)
        left = [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        for process in left:
            process.kill()
        assert not left
