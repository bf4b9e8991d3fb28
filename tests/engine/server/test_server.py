"""The HTTP server over a real socket, in front of an engine without a model."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.server.run import ServeError, listen, serve
from sessions.channel.unix import connect_unix
from tests.engine.server.fake_engine import FakeEngine


class Running:
    def __init__(self, engine: FakeEngine, port: int, thread: threading.Thread, ended: list[str]) -> None:
        self.engine = engine
        self.url = f"http://127.0.0.1:{port}"
        self.thread = thread
        self.ended = ended
        self.http = httpx.Client(base_url=self.url, timeout=20)


def start(tmp_path: Path, api_key: str | None = None) -> Running:
    engine = FakeEngine(tmp_path / "e.sock")
    sock = listen("127.0.0.1", 0)
    ended: list[str] = []

    def run() -> None:
        channel = connect_unix(tmp_path / "e.sock", "host-000001/server/2", "server", 10)
        ended.append(asyncio.run(serve(channel, sock, "tiny", 1024, api_key)))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    running = Running(engine, sock.getsockname()[1], thread, ended)
    deadline = time.monotonic() + 20
    while True:
        try:
            assert running.http.get("/health").status_code == 200
            return running
        except httpx.HTTPError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    running = start(tmp_path)
    yield running
    running.http.close()
    running.engine.hub.close()
    running.thread.join(20)


def events(response: httpx.Response) -> list[Any]:
    data = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert data[-1] == "[DONE]"
    return [json.loads(line) for line in data[:-1]]


def until(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_models(server: Running) -> None:
    (entry,) = server.http.get("/v1/models").json()["data"]
    assert (entry["id"], entry["object"], entry["max_model_len"]) == ("tiny", "model", 1024)


def test_a_completion(server: Running) -> None:
    body = {"model": "tiny", "prompt": "hello", "max_tokens": 4, "temperature": 0, "seed": 5, "stop": "x"}
    answer = server.http.post("/v1/completions", json=body).json()
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [{"index": 0, "finish_reason": "length", "logprobs": None, "text": "abcd"}]
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}
    spec = server.engine.specs[0]
    assert (spec.temperature, spec.seed, spec.stop, spec.max_tokens) == (0.0, 5, ["x"], 4)


def test_several_prompts_and_choices_in_order(server: Running) -> None:
    body = {"prompt": [[1, 2], [3]], "n": 2, "max_tokens": 2, "ignore_eos": True, "seed": 9}
    answer = server.http.post("/v1/completions", json=body).json()
    assert [choice["text"] for choice in answer["choices"]] == ["ab"] * 4
    assert [spec.prompt for spec in server.engine.specs] == [[1, 2], [3], [1, 2], [3]]
    assert [spec.seed for spec in server.engine.specs] == [9, 9, 10, 10]
    assert all(spec.ignore_eos for spec in server.engine.specs)
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 8, "total_tokens": 11}


def test_a_stream_with_usage(server: Running) -> None:
    body = {"prompt": "hi", "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}}
    with server.http.stream("POST", "/v1/completions", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        chunks = events(response)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks if chunk["choices"]) == "abc"
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert chunks[-1]["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}


def test_a_chat_with_list_form_content(server: Running) -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "hi "}, {"type": "text", "text": "there"}]},
    ]
    answer = server.http.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 2}).json()
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "ab"}
    assert server.engine.specs[0].prompt == "system: be brief\nuser: hi there\nassistant:"


def test_a_chat_streams_its_role_first(server: Running) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 2, "stream": True}
    with server.http.stream("POST", "/v1/chat/completions", json=body) as response:
        chunks = events(response)
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": "a"},
        {"content": "b"},
    ]
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_an_error_with_its_status(server: Running, stream: bool) -> None:
    answer = server.http.post("/v1/completions", json={"prompt": "refuse", "stream": stream})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["type"], error["message"]) == (
        "invalid_request_error",
        "request refused: too long: 2000 tokens, 1024 fit",
    )


def test_the_head_of_a_streams_reply_waits_for_no_token(server: Running) -> None:
    with server.http.stream("POST", "/v1/completions", json={"prompt": "mute", "stream": True}) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert server.engine.live
    until(lambda: server.engine.cancelled)


def test_what_breaks_after_the_head_is_an_event(server: Running) -> None:
    with server.http.stream("POST", "/v1/completions", json={"prompt": "mute", "stream": True}) as response:
        server.engine.hub.close("rank 1 died")
        (error,) = events(response)
    assert "the engine is gone" in error["error"]["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "x", "temperature": -1}, "temperature"),
        ({"prompt": "x", "top_p": 0}, "top_p"),
        ({"prompt": "x", "n": 0}, "n"),
        ({"prompt": []}, "prompt"),
        ({"prompt": "x", "logprobs": 1}, "logprobs"),
        ({"prompt": "x", "model": "other"}, "model"),
    ],
)
def test_a_value_that_no_request_may_have_is_named(server: Running, body: dict[str, Any], param: str) -> None:
    answer = server.http.post("/v1/completions", json=body)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"] == param


def test_errors_elsewhere_have_the_same_form(server: Running) -> None:
    assert server.http.get("/nowhere").json()["error"]["type"] == "invalid_request_error"
    assert server.http.get("/v1/completions").status_code == 405
    image = {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}
    assert "image_url" in server.http.post("/v1/chat/completions", json=image).json()["error"]["message"]


def test_a_client_that_goes_away_cancels_its_request(server: Running) -> None:
    body = {"prompt": "slow", "max_tokens": 50, "stream": True}
    with server.http.stream("POST", "/v1/completions", json=body) as response:
        next(response.iter_lines())
    until(lambda: len(server.engine.cancelled) == 1)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/v1/completions", json={"prompt": "slow", "max_tokens": 50}, timeout=0.5)
    until(lambda: len(server.engine.cancelled) == 2)


def test_metrics_have_vllms_names(server: Running) -> None:
    server.http.post("/v1/completions", json={"prompt": "hello", "max_tokens": 4})
    text = server.http.get("/metrics").text
    samples = {
        (sample.name, sample.labels.get("slot")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["vllm:num_requests_running", None] == 4
    assert samples["vllm:num_requests_waiting", None] == 1
    assert samples["vllm:kv_cache_usage_perc", None] == 0.25
    assert samples["vllm:generation_tokens_total", None] == 7
    assert samples["vllm:time_to_first_token_seconds_count", None] == 1
    assert samples["vllm:inter_token_latency_seconds_count", None] == 3
    assert samples["vllm:request_success_total", None] == 1
    assert samples["herdscope_slot_decode_requests", "0"] == 3
    assert samples["herdscope_waves", None] == pytest.approx(1.6)


def test_with_a_key_only_health_is_open(tmp_path: Path) -> None:
    running = start(tmp_path, api_key="s3cret")
    assert running.http.get("/v1/models").status_code == 401
    assert running.http.get("/v1/models", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert running.http.get("/v1/models", headers={"Authorization": "Bearer s3cret"}).status_code == 200
    running.engine.hub.close()
    running.thread.join(20)


def test_when_the_engine_ends_requests_fail_and_the_server_ends(server: Running) -> None:
    failed: list[httpx.Response] = []

    def ask() -> None:
        failed.append(server.http.post("/v1/completions", json={"prompt": "slow", "max_tokens": 50}))

    asker = threading.Thread(target=ask)
    asker.start()
    until(lambda: server.engine.live)
    server.engine.hub.close("rank 1 died")
    asker.join(20)
    assert failed[0].status_code == 503
    assert "the engine is gone" in failed[0].json()["error"]["message"]
    server.thread.join(20)
    assert server.ended[0].startswith("the engine is gone")


def test_hostile_bodies_are_refused(server: Running) -> None:
    rng = random.Random(3)
    for number in range(10_000):
        match number % 4:
            case 0:
                body = rng.randbytes(100)
            case 1:
                body = b"[" * 5000
            case 2:
                body = b'{"prompt": ' + b"9" * 4000 + b"}"
            case _:
                body = json.dumps({"prompt": {"a": 1}, "max_tokens": "many"}).encode()
        assert server.http.post("/v1/completions", content=body).status_code == 400
    assert server.http.post("/v1/completions", content=b"x" * (5 << 20)).status_code == 413
    assert server.http.post("/v1/completions", json={"prompt": "hello", "max_tokens": 2}).status_code == 200


def test_the_official_client_works_unchanged(server: Running) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
    assert [model.id for model in client.models.list()] == ["tiny"]
    answer = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hi"}], max_tokens=3)
    assert answer.choices[0].message.content == "abc"
    stream = client.completions.create(
        model="tiny", prompt="hi", max_tokens=3, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == "abc"
    assert chunks[-1].usage.completion_tokens == 3
    with pytest.raises(openai.BadRequestError, match="refused"):
        client.completions.create(model="tiny", prompt="refuse")


def test_an_address_in_use_is_named() -> None:
    first = listen("127.0.0.1", 0)
    with pytest.raises(ServeError, match="cannot listen on 127"):
        listen("127.0.0.1", first.getsockname()[1])
    first.close()
