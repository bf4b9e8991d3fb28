"""Workers that die, drivers that die, checkpoints and memory that do not do."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from engine.checkpoint.model_config import CheckpointError
from engine.config import ConfigError, EngineConfig, OutOfMemory
from engine.distributed import DistributedExecutor
from engine.executor import WorkerDied
from engine.plan import AdmitRow, AppendBlocks, DecodeRow, MicroBatchPlan, PrefillChunk
from sessions.knobs import KnobError, Knobs
from sessions.messages import LogLine

PROMPT = list(b"a prompt")


@pytest.fixture
def config(checkpoints: dict[str, Path]) -> EngineConfig:
    return EngineConfig(
        model=str(checkpoints["qwen3-moe"]), pp=2, ep=2, device="cpu", kv_blocks=64, max_context=256, max_running=8
    )


def first_plan() -> MicroBatchPlan:
    admit, blocks = AdmitRow(0, PROMPT, 0.0, 1.0, 0), AppendBlocks(0, 0, list(range(16)))
    return MicroBatchPlan(0, 0, [admit], [blocks], [], [PrefillChunk(0, 0, len(PROMPT), True)])


def decode_plan(step: int) -> MicroBatchPlan:
    return MicroBatchPlan(step, 0, [], [], [DecodeRow(0, len(PROMPT) - 1 + step)], [])


def collect_until_dead(executor: DistributedExecutor, steps: int) -> WorkerDied:
    with pytest.raises(WorkerDied) as caught:
        for _ in range(200):
            executor.collect(0.1)
    return caught.value


@pytest.mark.parametrize(("mode", "victim"), [("pp", 0), ("ep", 1)])
def test_a_killed_rank_is_named_and_the_others_end(config: EngineConfig, mode: str, victim: int) -> None:
    lines: list[LogLine] = []
    config = msgspec.structs.replace(config, knobs=Knobs(parallelism=mode))
    executor = DistributedExecutor(config, on_log=lines.append)
    try:
        pids = [rank.pid for rank in executor.capabilities.ranks]
        executor.submit(first_plan())
        for step in range(1, 60):
            executor.submit(decode_plan(step))
        executor.collect(5.0)
        os.kill(pids[victim], signal.SIGKILL)
        killed = time.monotonic()
        death = collect_until_dead(executor, 60)
        assert (death.rank, death.signal, death.cause) == (victim, "SIGKILL", "killed by SIGKILL")
        assert any("weights:" in line for line in death.last_log)
        assert any(line.rank == victim for line in lines)
        while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids):
            assert time.monotonic() - killed < 10
            time.sleep(0.05)
    finally:
        executor.close()
    if mode == "ep":
        again = DistributedExecutor(config)
        again.submit(first_plan())
        assert len(again.collect(20.0)[0].tokens) == 1
        again.close()


def test_workers_end_with_a_driver_that_is_killed(config: EngineConfig) -> None:
    code = (
        "import msgspec, sys, time\n"
        "from engine.config import EngineConfig\n"
        "from engine.distributed import DistributedExecutor\n"
        "e = DistributedExecutor(msgspec.json.decode(sys.argv[1], type=EngineConfig))\n"
        "print(*(r.pid for r in e.capabilities.ranks), flush=True)\n"
        "time.sleep(60)\n"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", code, msgspec.json.encode(config).decode()], stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 2
    driver.kill()
    driver.wait(5)
    deadline = time.monotonic() + 5
    while any(map(psutil.pid_exists, pids)):
        assert time.monotonic() < deadline, "workers outlived their driver"
        time.sleep(0.05)


def test_a_mode_that_does_not_suit_the_model_is_refused_and_the_engine_goes_on(config: EngineConfig) -> None:
    executor = DistributedExecutor(msgspec.structs.replace(config, pp=2, ep=3, token_budget=32, kv_blocks=16))
    try:
        assert "ep 3 does not divide" in executor.capabilities.unavailable["parallelism"]
        with pytest.raises(KnobError, match="parallelism is unavailable: ep 3 does not divide the model's experts"):
            executor.apply(Knobs(parallelism="ep"))
        executor.submit(first_plan())
        assert len(executor.collect(20.0)[0].tokens) == 1
    finally:
        executor.close()


def test_one_executor_and_its_refusals(config: EngineConfig, tmp_path: Path) -> None:
    """Memory that does not do for a switch, a knob that cannot be turned, two profiles at once: the engine goes on."""
    config = msgspec.structs.replace(config, pp=2, ep=1, memory_limit=1_100_000, token_budget=32, kv_blocks=16)
    executor = DistributedExecutor(config)
    try:
        with pytest.raises(OutOfMemory, match=r"switching to ep: rank 0 needs [\d.]+ GiB at the peak and may use"):
            executor.apply(Knobs(parallelism="ep"))
        with pytest.raises(KnobError, match="cuda_graphs is unavailable: no CUDA device"):
            executor.apply(Knobs(cuda_graphs=True))
        executor.profile(str(tmp_path))
        with pytest.raises(KnobError, match="a profile is running already"):
            executor.profile(str(tmp_path))
        executor.count_experts(True)
        executor.submit(first_plan())
        results = executor.collect(20.0)
        assert len(results[0].tokens) == 1
        counts = executor.count_experts(False)
        assert sorted(layer for rank in counts for layer in rank.tokens) == [0, 1, 2, 3]
        assert all(sum(tokens) == 2 * len(PROMPT) for rank in counts for tokens in rank.tokens.values())
        traces = executor.end_profile(60.0)
        assert len(traces) == 2
        for trace in traces:
            assert f"step[EXTEND bs=1 toks={len(PROMPT)}]" in gzip.decompress(Path(trace).read_bytes()).decode()
        with pytest.raises(KnobError, match="no profile is running"):
            executor.end_profile(60.0)
        executor.wake()
        started = time.monotonic()
        assert executor.collect(30.0) == [] and time.monotonic() - started < 20
    finally:
        executor.close()
    executor.close()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"model": "no-such-model"}, CheckpointError, "neither a folder nor a preset"),
        ({"pp": 9}, ConfigError, "pp 9 is more than the model's 4 layers"),
        ({"memory_limit": 1000}, OutOfMemory, r"rank 0 needs [\d.]+ GiB for its weights and may use"),
        ({"device": "cuda"}, ConfigError, "no CUDA device is visible"),
    ],
)
def test_what_cannot_start_says_why(
    config: EngineConfig, change: dict[str, object], error: type[Exception], words: str
) -> None:
    pp = 1 if change.get("pp") is None else 9
    with pytest.raises(error, match=words) as caught:
        DistributedExecutor(msgspec.structs.replace(config, **({"pp": pp, "ep": 1} | change)))
    assert "\n" not in str(caught.value)


def test_a_broken_shard_is_named_at_the_start(config: EngineConfig, tmp_path: Path) -> None:
    source = Path(config.model)
    for path in source.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    shard = sorted(tmp_path.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=rf"{shard.name}: truncated"):
        DistributedExecutor(msgspec.structs.replace(config, model=str(tmp_path), pp=1, ep=1))
