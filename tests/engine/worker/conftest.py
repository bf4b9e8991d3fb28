"""Tiny checkpoints, what transformers generates from them, and one set of workers for each layout."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.checkpoint.tiny import TinyFamily, write_tiny_checkpoint
from engine.config import EngineConfig
from sessions.knobs import Knobs
from sessions.messages import RequestSpec
from tests.engine.worker.reference import greedy_tokens
from tests.engine.worker.served import OUTPUT, Served, prompts

os.environ["OMP_NUM_THREADS"] = "1"
FAMILIES: list[TinyFamily] = ["qwen3-moe", "deepseek-v3"]
LAYERS = 4


@pytest.fixture(scope="session", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> TinyFamily:
    chosen: TinyFamily = request.param
    return chosen


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tiny")
    for name in FAMILIES:
        write_tiny_checkpoint(folder / name, name, seed=1, layers=LAYERS)
    return {name: folder / name for name in FAMILIES}


@pytest.fixture(scope="session")
def expected(family: str, checkpoints: dict[str, Path]) -> dict[str, list[int]]:
    return greedy_tokens(checkpoints[family])


@pytest.fixture(scope="session")
def requests() -> list[RequestSpec]:
    return [
        RequestSpec(id=f"r{number}", prompt=prompt, max_tokens=OUTPUT, ignore_eos=True)
        for number, prompt in enumerate(prompts())
    ]


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, family: str, checkpoints: dict[str, Path]) -> Iterator[Served]:
    """Workers for the (pp, ep) that the test module is parametrised with."""
    pp, ep = request.param
    mode = "pp" if pp >= ep else "ep"
    config = EngineConfig(
        model=str(checkpoints[family]),
        pp=pp,
        ep=ep,
        device="cpu",
        kv_blocks=512,
        block_size=8,
        max_context=256,
        max_running=64,
        knobs=Knobs(parallelism=mode),
    )
    server = Served(config)
    yield server
    server.executor.close()
