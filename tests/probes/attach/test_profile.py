from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from probes.attach.errors import ServerError
from probes.attach.http import ServerHttp
from probes.attach.live_knobs import set_sglang_micro_batch
from probes.attach.profile import ProfileNotExposed, record_profile
from tests.probes.attach.stub_server import StubServer


def test_a_profile_is_started_stopped_and_collected(tmp_path: Path) -> None:
    stub = StubServer("sglang", "", profile_s=0.3)
    (tmp_path / "old.trace.json.gz").write_bytes(b"old")

    def write() -> None:
        time.sleep(0.5)
        (tmp_path / "1-TP-0-PP-0.trace.json.gz").write_bytes(b"x")
        (tmp_path / "1-TP-0-PP-1.trace.json.gz").write_bytes(b"y")

    threading.Thread(target=write).start()
    profile = record_profile(ServerHttp(stub.url), "sglang", tmp_path, seconds=0.1)
    assert [path.name for path in profile.traces] == ["1-TP-0-PP-0.trace.json.gz", "1-TP-0-PP-1.trace.json.gz"]
    assert profile.stop_s >= 0.3
    path, body = stub.posted[0]
    assert path == "/start_profile"
    assert (body["output_dir"], body["with_stack"]) == (str(tmp_path), False)
    stub.close()


def test_a_server_without_a_profiler_is_said_to_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = StubServer("vllm", "")
    monkeypatch.setattr(stub, "post", lambda path, body: (404, b"no", "text/plain"))
    with pytest.raises(ProfileNotExposed, match="--profiler-config"):
        record_profile(ServerHttp(stub.url), "vllm", tmp_path, 0.1)
    stub.close()


def test_traces_that_never_come_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.attach.profile.FILES_TIMEOUT_S", 0.2)
    stub = StubServer("sglang", "")
    with pytest.raises(ServerError, match="no new trace"):
        record_profile(ServerHttp(stub.url), "sglang", tmp_path, 0.1)
    stub.close()


def test_sglangs_slot_limit_is_set_while_it_runs() -> None:
    stub = StubServer("sglang", "")
    set_sglang_micro_batch(ServerHttp(stub.url), 4)
    assert stub.posted == [("/set_internal_state", {"server_args": {"pp_max_micro_batch_size": 4}})]
    stub.close()


def test_the_trace_of_vllms_api_server_is_none_of_a_rank(tmp_path: Path) -> None:
    stub = StubServer("vllm", "")

    def write() -> None:
        time.sleep(0.5)
        (tmp_path / "host_1.async_llm.1.pt.trace.json.gz").write_bytes(b"x")
        (tmp_path / "dp0_pp0_tp0_dcp0_ep0_rank0.1.pt.trace.json.gz").write_bytes(b"y")

    threading.Thread(target=write).start()
    profile = record_profile(ServerHttp(stub.url), "vllm", tmp_path, seconds=0.1)
    assert [path.name for path in profile.traces] == ["dp0_pp0_tp0_dcp0_ep0_rank0.1.pt.trace.json.gz"]
    stub.close()


def test_starting_has_a_time_out_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.attach.profile.START_TIMEOUT_S", 0.1)
    stub = StubServer("vllm", "")
    answer = stub.post

    def slow(path: str, body: object) -> tuple[int, bytes, str]:
        time.sleep(0.5)
        return answer(path, body)

    monkeypatch.setattr(stub, "post", slow)
    with pytest.raises(ServerError, match="timed out"):
        record_profile(ServerHttp(stub.url), "vllm", tmp_path, 0.1)
    stub.close()
