"""Tiny checkpoints and transformers' own models of them, written once."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.checkpoint.tiny import TinyFamily, write_tiny_checkpoint


@pytest.fixture(scope="session", params=["qwen3-moe", "deepseek-v3"])
def tiny_checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    family: TinyFamily = request.param
    folder = tmp_path_factory.mktemp(family)
    write_tiny_checkpoint(folder, family, seed=1, layers=4)
    return folder
