from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probes.attach.errors import ServerError
from probes.attach.gateway import ServerGateway
from probes.attach.http import ServerHttp
from probes.attach.openai_stream import StreamError, read_line
from probes.attach.recognise import recognise
from probes.attach.watcher import ServerWatcher
from sessions.bench.channel_target import ChannelTarget
from sessions.channel.interface import Channel
from sessions.channel.unix import UnixHub, connect_unix
from sessions.knobs import KnobName, KnobValue
from sessions.load.lengths import Lengths
from sessions.load.prompts import random_requests
from sessions.messages import (
    EngineState,
    Fault,
    KnobReply,
    KnobRequest,
    Marker,
    Message,
    QueueFrame,
    RequestSpec,
    SubmitRequests,
    TokenFrame,
)
from tests.probes.attach.stub_server import StubServer


def until(condition: Callable[[], object], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def sglang(shared_data: Path) -> Iterator[StubServer]:
    stub = StubServer("sglang", (shared_data / "servers" / "sglang_metrics_pp2.txt").read_text())
    yield stub
    stub.close()


@pytest.fixture
def vllm(shared_data: Path) -> Iterator[StubServer]:
    stub = StubServer("vllm", (shared_data / "servers" / "vllm_metrics_pp2.txt").read_text())
    yield stub
    stub.close()


def test_recognises_sglang_with_its_slots(sglang: StubServer) -> None:
    server = recognise(ServerHttp(sglang.url + "/v1"))
    assert (server.kind, server.version, server.pp, server.slots) == ("sglang", "0.5.15", 2, 2)
    assert server.max_context == 4096


def test_recognises_vllm(vllm: StubServer) -> None:
    server = recognise(ServerHttp(vllm.url))
    assert (server.kind, server.version, server.models) == ("vllm", "0.32.0", ["tiny"])
    assert server.pp is None


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://h", "http://"])
def test_a_wrong_address_is_named(url: str) -> None:
    with pytest.raises(ServerError, match="write http"):
        ServerHttp(url)


def test_nobody_there_is_said() -> None:
    with pytest.raises(ServerError, match="cannot be reached"):
        recognise(ServerHttp("http://127.0.0.1:9"))


def test_the_watcher_tells_sglangs_slots_as_a_queue_frame(sglang: StubServer) -> None:
    http = ServerHttp(sglang.url)
    seen: list[Message] = []
    watcher = ServerWatcher(http, recognise(http), "h/probe/1", seen.append)
    watcher.scrape_once()
    frame = seen[-1]
    assert isinstance(frame, QueueFrame)
    assert [slot.decode for slot in frame.slots] == [15, 1]
    assert (frame.running, frame.waiting, frame.output_tokens_total) == (16, 0, 8338)


def test_the_watcher_says_what_vllm_does_not_expose_once(vllm: StubServer) -> None:
    http = ServerHttp(vllm.url)
    seen: list[Message] = []
    watcher = ServerWatcher(http, recognise(http), "h/probe/1", seen.append)
    watcher.scrape_once()
    watcher.scrape_once()
    notes = [message.text for message in seen if isinstance(message, Marker)]
    assert len(notes) == 2
    assert notes[0].startswith("slot sizes: not exposed by vLLM 0.32.0: ")
    assert sum(isinstance(message, QueueFrame) for message in seen) == 2


def test_a_server_that_dies_is_a_fault_and_its_return_is_noticed(vllm: StubServer) -> None:
    http = ServerHttp(vllm.url)
    seen: list[Message] = []
    watcher = ServerWatcher(http, recognise(http), "h/probe/1", seen.append)
    vllm.failing = True
    for _ in range(4):
        watcher.scrape_once()
    faults = [message for message in seen if isinstance(message, Fault)]
    assert len(faults) == 1
    assert "answered 500" in faults[0].cause
    vllm.failing = False
    watcher.scrape_once()
    states = [message.phase for message in seen if isinstance(message, EngineState)]
    assert states == ["failed", "ready"]


def test_real_streams_of_vllm_are_counted_as_the_server_counts_them(shared_data: Path) -> None:
    for name in ("vllm_completions.sse", "vllm_chat.sse"):
        pieces = [
            piece
            for line in (shared_data / "servers" / name).read_text().splitlines()
            if (piece := read_line(line, 1)) is not None
        ]
        usages = [piece.output_tokens for piece in pieces if piece.output_tokens is not None]
        assert sum(piece.tokens for piece in pieces) == (usages[-1] if usages else 4)
        assert [piece.finish_reason for piece in pieces if piece.finish_reason] == ["length"]


def test_an_error_inside_a_stream_is_raised() -> None:
    with pytest.raises(StreamError, match="engine is gone"):
        read_line('data: {"error": {"message": "the engine is gone"}}', 1)
    with pytest.raises(StreamError, match="malformed"):
        read_line("data: {nonsense", 1)


@pytest.fixture
def gateway(vllm: StubServer, tmp_path: Path) -> Iterator[tuple[StubServer, Channel]]:
    http = ServerHttp(vllm.url)
    hub = UnixHub(tmp_path / "g.sock", "h/server/1", "server")
    running = ServerGateway(http, recognise(http), hub)
    channel = connect_unix(tmp_path / "g.sock", "h/bench/2", "bench", 10)
    yield vllm, channel
    channel.close()
    running.close()
    hub.close()


def submit(channel: Channel, specs: list[RequestSpec]) -> list[TokenFrame]:
    """Submit and gather token frames until every request has ended."""
    tokens = channel.subscribe([TokenFrame])
    command = SubmitRequests(source=channel.source, t_ns=time.monotonic_ns(), id="s", requests=specs)
    assert channel.request(command, 10).ok
    frames: list[TokenFrame] = []
    deadline = time.monotonic() + 20
    while sum(len(frame.finished) for frame in frames) < len(specs):
        assert time.monotonic() < deadline
        frames += [m for m in tokens.drain() if isinstance(m, TokenFrame)]
        time.sleep(0.01)
    return frames


def test_requests_go_to_the_openai_endpoint(gateway: tuple[StubServer, Channel]) -> None:
    vllm, channel = gateway
    frames = submit(channel, [RequestSpec(f"r{n}", [1, 2, 3], 8, ignore_eos=True) for n in range(5)])
    finished = [end for frame in frames for end in frame.finished]
    assert {(end.reason, end.prompt_tokens, end.output_tokens) for end in finished} == {("length", 5, 8)}
    assert sum(len(event.tokens) for frame in frames for event in frame.events) == 40
    body = vllm.posted[0][1]
    assert (body["ignore_eos"], body["prompt"], body["stream_options"]) == (True, [1, 2, 3], {"include_usage": True})


def test_a_refused_request_is_accounted_for(gateway: tuple[StubServer, Channel]) -> None:
    _, channel = gateway
    (end,) = [end for frame in submit(channel, [RequestSpec("r", "refuse", 8)]) for end in frame.finished]
    assert end.reason == "refused"
    assert "too long" in end.detail


def test_our_benchmark_runs_against_it(gateway: tuple[StubServer, Channel]) -> None:
    _, channel = gateway
    target = ChannelTarget(channel)
    assert target.engine.phase == "ready"
    assert "herdscope launch" in target.knobs.unavailable["async_depth"]


def test_knobs_that_a_running_server_has_are_turned_and_others_refused(sglang: StubServer, tmp_path: Path) -> None:
    http = ServerHttp(sglang.url)
    hub = UnixHub(tmp_path / "g.sock", "h/server/1", "server")
    gateway = ServerGateway(http, recognise(http), hub)
    channel = connect_unix(tmp_path / "g.sock", "h/console/2", "console", 10)

    def turn(knob: KnobName, value: KnobValue) -> KnobReply:
        reply = channel.request(
            KnobRequest(source=channel.source, t_ns=time.monotonic_ns(), id=knob, knob=knob, value=value), 10
        )
        assert isinstance(reply, KnobReply)
        return reply

    assert (turn("max_micro_batch", 4).ok, turn("async_depth", 4).ok) == (True, False)
    assert ("/set_internal_state", {"server_args": {"pp_max_micro_batch_size": 4}}) in sglang.posted
    channel.close()
    gateway.close()
    hub.close()


def test_a_random_load_runs_though_the_vocabulary_is_not_told(gateway: tuple[StubServer, Channel]) -> None:
    vllm, channel = gateway
    target = ChannelTarget(channel)
    assert target.engine.model is not None
    assert target.engine.model.vocab == 0
    requests = random_requests("r", target.engine.model.vocab, Lengths(5, 5), Lengths(2, 2), seed=1)
    assert target.submit([next(requests)]) == ""
    until(lambda: vllm.posted)
    assert all(0 <= token < 256 for token in vllm.posted[0][1]["prompt"])


def test_our_own_servers_stages_are_told_once_they_are_seen() -> None:
    metrics = "\n".join(
        ["# TYPE herdscope_stage_occupancy_ratio gauge"]
        + [f'herdscope_stage_occupancy_ratio{{stage="{stage}"}} 0.5' for stage in range(4)]
        + ["# TYPE vllm:num_requests_running gauge", "vllm:num_requests_running 3", ""]
    )
    stub = StubServer("herdscope", metrics)
    http = ServerHttp(stub.url)
    seen: list[Message] = []
    watcher = ServerWatcher(http, recognise(http), "h/probe/1", seen.append)
    watcher.scrape_once()
    watcher.scrape_once()
    assert [message.stages for message in seen if isinstance(message, EngineState)] == [4]
    stub.close()
