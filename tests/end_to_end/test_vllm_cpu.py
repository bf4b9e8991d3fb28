"""Attached to a real vLLM server over two pipeline stages. Opt-in: HERDSCOPE_VLLM_PYTHON names its interpreter."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from probes.attach.connect import attach
from probes.diagnosis.diagnose import diagnose
from probes.diagnosis.from_messages import evidence_from_messages, gather
from probes.diagnosis.from_profile import evidence_from_profile
from probes.diagnosis.report import as_text
from sessions.channel.interface import Channel, Subscription
from sessions.load.driver import LoadDriver
from sessions.load.workload import LoadPoint, Workload
from sessions.messages import (
    EngineState,
    Fault,
    KnobState,
    Message,
    ProfileReply,
    ProfileRequest,
    QueueFrame,
    RequestSpec,
    StageFrame,
    SubmitRequests,
    TokenFrame,
)
from tests.end_to_end.vllm_server import GRAPHLESS, VllmServer, vllm_program, vllm_server

pytestmark = [pytest.mark.optin, pytest.mark.timeout(1500)]
KINDS: list[type[Message]] = [EngineState, KnobState, QueueFrame, StageFrame, TokenFrame, Fault]
STREAMS = 4


@pytest.fixture(autouse=True)
def _vllm_is_there() -> None:
    vllm_program()


@contextmanager
def attached(server: VllmServer) -> Iterator[tuple[Channel, Subscription]]:
    """The channel to the server, with everything that is told on it."""
    joined = attach(server.url, "test", "console")
    try:
        yield joined.channel, joined.channel.subscribe(KINDS, capacity=100_000)
    finally:
        joined.close("the test ended")


@contextmanager
def loaded(channel: Channel) -> Iterator[None]:
    """Keep a few requests running meanwhile."""
    workload = Workload()
    driver = LoadDriver(channel, workload, LoadPoint(concurrency=STREAMS), vocab=256)
    thread = threading.Thread(target=driver.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        driver.stop()
        thread.join(30)


def until_fault(heard: Subscription, timeout_s: float) -> Fault:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        message = heard.get(1.0)
        if isinstance(message, Fault):
            return message
    pytest.fail(f"no fault within {timeout_s:.0f} s")


def test_queues_herd_verdict_and_death_of_a_real_server(tmp_path: Path) -> None:
    with vllm_server(tmp_path, *GRAPHLESS) as server, attached(server) as (channel, heard):
        with loaded(channel):
            time.sleep(15)
            shown = heard.drain()
            reply = channel.request(profile(channel, server.profiles), timeout_s=600)
        assert isinstance(reply, ProfileReply) and reply.ok, reply.reason
        told = [*shown, *heard.drain()]

        queues = [m for m in shown if isinstance(m, QueueFrame)]
        assert max(frame.running for frame in queues) == STREAMS
        assert queues[-1].output_tokens_total > queues[0].output_tokens_total  # the throughput, by differences

        assert [Path(trace).name.split("_rank")[0] for trace in reply.traces] == [
            f"dp0_pp{stage}_tp0_dcp0_ep0" for stage in (0, 1)
        ]
        found = diagnose(evidence_from_profile([Path(trace) for trace in reply.traces], told))
        verdicts = {verdict.hypothesis: verdict for verdict in found.verdicts}
        print(as_text(found))
        assert verdicts["herd"].verdict == "holds"

        burst = diagnose(evidence_from_messages(gather(tokens_alone(shown, told)))).herd.B
        print("burst B from token times:", burst)
        assert burst is not None and burst > 0.5

        kill_engine(server)
        fault = until_fault(heard, 60)
        assert fault.what.startswith("vLLM ") and fault.what.endswith(" died")


def test_with_enforce_eager_the_first_request_kills_the_engine_and_that_is_told(tmp_path: Path) -> None:
    with vllm_server(tmp_path, "--enforce-eager") as server, attached(server) as (channel, heard):
        spec = RequestSpec(id="first", prompt=list(range(32)), max_tokens=8, ignore_eos=True)
        channel.request(
            SubmitRequests(source=channel.source, t_ns=time.monotonic_ns(), id="1", requests=[spec]), timeout_s=10
        )
        fault = until_fault(heard, 300)
        assert fault.what.startswith("vLLM ")


def profile(channel: Channel, folder: Path) -> ProfileRequest:
    return ProfileRequest(source=channel.source, t_ns=time.monotonic_ns(), id="p", steps=60, folder=str(folder))


def tokens_alone(shown: list[Message], told: list[Message]) -> list[Message]:
    """What a client sees who knows the number of stages, and nothing else, before the profile disturbed the server."""
    return [m for m in told if isinstance(m, EngineState | KnobState)] + [m for m in shown if isinstance(m, TokenFrame)]


def kill_engine(server: VllmServer) -> None:
    """kill -9 of the engine's process, not of the one that answers HTTP."""
    engines = [p for p in psutil.Process(server.group).children(recursive=True) if "EngineCore" in "".join(p.cmdline())]
    assert engines
    os.kill(engines[0].pid, signal.SIGKILL)
