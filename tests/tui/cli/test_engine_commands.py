"""Commands that start a real engine: what they print, and that nothing they started outlives them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from engine.checkpoint.tiny import write_tiny_checkpoint
from engine.config import EngineConfig
from engine.launch import EngineProcess
from sessions.bench.channel_target import ChannelTarget
from sessions.bench.runner import run_bench
from sessions.channel.unix import connect_unix
from sessions.compare.ab.design import Factor
from sessions.compare.ab.run import AbPlan, run_ab
from sessions.knobs import Knobs
from sessions.load.lengths import Lengths
from sessions.load.workload import LoadPoint, Workload
from sessions.messages import LoadState, QueueFrame, StageFrame, TokenFrame
from sessions.recording.reader import Recording

pytestmark = pytest.mark.timeout(240)
HERDSCOPE = [sys.executable, "-m", "tui.cli.main"]
SMALL = ["--pp", "2", "--concurrency", "2", "--requests", "4", "--output-tokens", "6"]
SHORT = Workload(prompt_tokens=Lengths(4, 4), output_tokens=Lengths(12, 12), requests=32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_tiny_checkpoint(folder, "qwen3-moe", layers=4)
    return folder


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[EngineProcess]:
    knobs = Knobs(async_depth=4, admission="greedy")
    process = EngineProcess.start(EngineConfig(model=str(model), device="cpu", pp=4, knobs=knobs, max_context=512))
    try:
        process.wait_ready(120)
        yield process
    finally:
        process.stop()


@pytest.fixture
def target(engine: EngineProcess) -> Iterator[ChannelTarget]:
    channel = connect_unix(engine.socket, "test/bench/1", "bench", 10)
    yield ChannelTarget(channel)
    channel.close()


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **extra}


def engine_processes(model: Path) -> set[int]:
    """Every live process that an engine of this model consists of."""
    found: set[int] = set()
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or [])
        if "engine." in line and str(model) in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.add(process.pid)
    return found


def wait_until(condition, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def test_a_herd_and_its_cure_show_in_waves_with_the_same_tokens(target: ChannelTarget):
    """A burst of short prompts on 4 stages and 4 slots: greedy puts all into one slot, rebalance spreads them."""
    found = {}
    for admission in ("greedy", "rebalance"):
        assert target.turn("admission", admission).ok
        found[admission] = run_bench(target, SHORT, [LoadPoint(concurrency=16)]).points[0]
    greedy, rebalance = found["greedy"], found["rebalance"]
    assert greedy.waves < 1.3 and rebalance.waves > 3.5
    assert greedy.herd_index > 0.9 and rebalance.herd_index < 0.1
    assert greedy.outputs_digest == rebalance.outputs_digest != ""
    assert len(greedy.occupancy) == 4 and all(0 < share < 1 for share in greedy.occupancy)
    assert greedy.requests.finished == rebalance.requests.finished == 48


def test_an_experiment_on_a_real_engine_reaches_a_verdict(target: ChannelTarget):
    """One block can show nothing, so this only runs the machinery: every cell measured, every knob put back."""
    before = target.knobs.knobs
    workload = Workload(prompt_tokens=Lengths(4, 4), output_tokens=Lengths(4, 4), requests=4)
    factor = Factor("async_depth", [1, 4])
    result = run_ab(target, AbPlan(factors=[factor], workload=workload, point=LoadPoint(concurrency=4), most=6))
    assert result.blocks == 6 and len(result.runs) == 12 and result.same_tokens
    assert [cell.knobs.async_depth for cell in result.cells] == [1, 4]
    wait_until(lambda: target.advance(target.clock.now_ns() + 10**8) is not None and target.knobs.knobs == before, 10)


def test_load_accounts_for_every_request_of_a_trace_with_those_that_can_never_fit(engine, tmp_path):
    path = tmp_path / "trace.jsonl"
    lengths = [16, 5000, 40, 16]
    path.write_text(
        "".join(f'{{"timestamp":{i * 50},"input_length":{n},"output_length":3}}\n' for i, n in enumerate(lengths))
    )
    done = subprocess.run(
        [*HERDSCOPE, "load", "--connect", str(engine.socket), "--workload", f"mooncake:{path}", "--json",
         "--record", str(tmp_path / "r.herd")],
        capture_output=True, text=True, timeout=60, env=environment(),
    )  # fmt: skip
    counts = json.loads(done.stdout)
    assert (counts["submitted"], counts["finished"], counts["refused"]) == (4, 3, 1)
    assert counts["without_an_end"] == 0 and len(counts["reasons"]) == 1
    with closing(Recording(tmp_path / "r.herd")) as recording:
        kinds = {type(record.message) for record in recording.records()}
    assert {TokenFrame, QueueFrame, LoadState, StageFrame} <= kinds


def test_bench_prints_only_json_and_ends_its_engine(model: Path, tmp_path: Path):
    output = tmp_path / "result.json"
    before = engine_processes(model)
    done = subprocess.run(
        [*HERDSCOPE, "bench", "--model", str(model), *SMALL, "--json", "--output", str(output)],
        capture_output=True, text=True, timeout=120, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    (point,) = result["points"]
    assert point["requests"] == {"finished": 6, "cancelled": 0, "refused": 0, "failed": 0}
    assert result["engine"]["pp"] == 2 and result["emulated"] is False
    assert json.loads(output.read_text()) == result
    assert engine_processes(model) == before


@pytest.mark.parametrize(
    "how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL], ids=lambda how: how.name
)
def test_a_bench_that_is_ended_leaves_no_process(model: Path, how: signal.Signals):
    command = [*HERDSCOPE, "bench", "--model", str(model), "--pp", "2", "--concurrency", "2", "--requests", "100000"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), preexec_fn=_heed_signals
    ) as bench:
        children: list[psutil.Process] = []
        wait_until(lambda: children.extend(_engine_children(bench.pid)) or len(children) >= 3, 60)
        bench.send_signal(how)
        _, said = bench.communicate(timeout=30)
    assert bench.returncode == (1 if how != signal.SIGKILL else -signal.SIGKILL)
    assert "Traceback" not in said
    wait_until(lambda: not any(_alive(child) for child in children), 20)


def test_a_bench_whose_worker_dies_says_which_rank_and_why(model: Path):
    command = [*HERDSCOPE, "bench", "--model", str(model), "--pp", "2", "--concurrency", "2", "--requests", "100000"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as bench:
        children: list[psutil.Process] = []
        wait_until(lambda: children.extend(_engine_children(bench.pid)) or len(children) >= 3, 60)
        time.sleep(6)
        driver = next(child for child in children if child.ppid() == bench.pid)
        workers = [child for child in children if child.ppid() == driver.pid]
        workers[-1].kill()
        _, said = bench.communicate(timeout=60)
    assert bench.returncode == 1
    assert "rank" in said.splitlines()[-1] and "SIGKILL" in said.splitlines()[-1]
    assert "Traceback" not in said
    wait_until(lambda: not any(_alive(child) for child in children), 20)


def _heed_signals() -> None:
    """Tests that run in the background (nohup, `&` in a script) ignore these, and so would what they start."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _engine_children(pid: int) -> list[psutil.Process]:
    """The driver and its workers, once both workers are there."""
    children = psutil.Process(pid).children(recursive=True)
    return children if len(children) >= 3 else []


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_engine_that_cannot_start_is_one_line_and_its_log(tmp_path: Path):
    done = subprocess.run(
        [*HERDSCOPE, "bench", "--model", str(tmp_path), "--pp", "2"],
        capture_output=True, text=True, timeout=60, env=environment(),
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr
