"""The engine on GPUs: transformers' greedy tokens in float32, graphs on and off, toggled and switched while it runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import torch

from engine.checkpoint.tiny import write_tiny_checkpoint
from engine.config import EngineConfig
from sessions.knobs import Knobs
from sessions.messages import RequestSpec
from tests.engine.worker.reference import greedy_tokens
from tests.engine.worker.served import OUTPUT, Served, prompts

GPUS = torch.cuda.device_count()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not GPUS, reason="no CUDA device")]
REQUESTS = [
    RequestSpec(id=f"r{number}", prompt=prompt, max_tokens=OUTPUT, ignore_eos=True)
    for number, prompt in enumerate(prompts())
]
TOGGLES = 100


@pytest.fixture(scope="module", params=["qwen3-moe", "deepseek-v3"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    write_tiny_checkpoint(folder, request.param, seed=1, layers=4)
    return folder


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> dict[str, list[int]]:
    return greedy_tokens(checkpoint)


@pytest.fixture(scope="module", params=[1, 2, 4])
def served(request: pytest.FixtureRequest, checkpoint: Path) -> Iterator[Served]:
    """As many ranks as the parameter says, in both parallelisms."""
    if request.param > GPUS:
        pytest.skip(f"needs {request.param} GPUs")
    server = Served(
        EngineConfig(
            model=str(checkpoint),
            device="cuda",
            pp=request.param,
            ep=request.param,
            kv_blocks=512,
            block_size=16,
            max_context=256,
            max_running=64,
        )
    )
    yield server
    server.executor.close()


def check(
    served: Served,
    expected: dict[str, list[int]],
    knobs: Knobs,
    between: Callable[[int, Knobs], Knobs] | None = None,
) -> None:
    outputs, _ = served.generate(knobs, REQUESTS, between=between)
    same = sum(outputs[name] == expected[name] for name in expected)
    assert same == len(expected), f"{same} of {len(expected)} with {knobs}"


def test_graphs_off_on_and_toggled(served: Served, expected: dict[str, list[int]]) -> None:
    draw = random.Random(3)

    def toggle(step: int, knobs: Knobs) -> Knobs:
        return msgspec.structs.replace(knobs, cuda_graphs=draw.random() < 0.5) if draw.random() < 0.1 else knobs

    check(served, expected, Knobs(async_depth=2, admission="capped"))
    check(served, expected, Knobs(async_depth=2, admission="capped", cuda_graphs=True))
    check(served, expected, Knobs(async_depth=4, admission="rebalance"), toggle)


def test_parallelism_switched_while_graphs_replay(served: Served, expected: dict[str, list[int]]) -> None:
    if served.config.pp == 1:
        pytest.skip("needs several ranks")
    switch_at = [20, 45, 70]

    def turn(step: int, knobs: Knobs) -> Knobs:
        if not switch_at or step < switch_at[0]:
            return knobs
        switch_at.pop(0)
        return msgspec.structs.replace(knobs, parallelism="ep" if knobs.parallelism == "pp" else "pp")

    check(served, expected, Knobs(async_depth=2, admission="capped", cuda_graphs=True), turn)
    assert not switch_at
    check(served, expected, Knobs(async_depth=1, cuda_graphs=True, parallelism="ep"))


def test_toggling_graphs_leaks_nothing(served: Served, checkpoint: Path) -> None:
    if served.config.pp > 1 or "qwen3" not in checkpoint.name:
        pytest.skip("one engine is enough")
    few = REQUESTS[:4]
    free = []
    for _ in range(TOGGLES):
        for on in (False, True):
            served.turn(msgspec.structs.replace(served.knobs, cuda_graphs=on))
        served.generate(served.knobs, [msgspec.structs.replace(spec, max_tokens=2) for spec in few])
        free.append(torch.cuda.mem_get_info()[0])
    assert free[-1] >= free[9] - (1 << 20), "memory shrank over the toggles"
