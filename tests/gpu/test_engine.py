"""The engine on one GPU: transformers' greedy tokens in float32, graphs on and off, toggled while requests run."""

from __future__ import annotations

import random
from collections.abc import Iterator
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

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
REQUESTS = [
    RequestSpec(id=f"r{number}", prompt=prompt, max_tokens=OUTPUT, ignore_eos=True)
    for number, prompt in enumerate(prompts())
]


@pytest.fixture(scope="module", params=["qwen3-moe", "deepseek-v3"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    write_tiny_checkpoint(folder, request.param, seed=1, layers=4)
    return folder


@pytest.fixture(scope="module")
def served(checkpoint: Path) -> Iterator[Served]:
    config = EngineConfig(
        model=str(checkpoint), device="cuda", kv_blocks=512, block_size=16, max_context=256, max_running=64
    )
    server = Served(config)
    yield server
    server.executor.close()


def test_graphs_off_on_and_toggled(served: Served, checkpoint: Path) -> None:
    expected = greedy_tokens(checkpoint)
    draw = random.Random(3)

    def toggle(step: int, knobs: Knobs) -> Knobs:
        return msgspec.structs.replace(knobs, cuda_graphs=draw.random() < 0.5) if draw.random() < 0.1 else knobs

    for knobs, between in (
        (Knobs(async_depth=2, admission="capped"), None),
        (Knobs(async_depth=2, admission="capped", cuda_graphs=True), None),
        (Knobs(async_depth=4, admission="rebalance"), toggle),
    ):
        outputs, _ = served.generate(knobs, REQUESTS, between=between)
        same = sum(outputs[name] == expected[name] for name in expected)
        assert same == len(expected), f"{same} of {len(expected)} with {knobs}"
