"""Logits on the GPU's kernels against transformers', in float32 and in bfloat16."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.checkpoint.tiny import TinyFamily, write_tiny_checkpoint
from tests.engine.models.decoding import error, median_error, our_logits, their_logits

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
CPU = torch.device("cpu")


@pytest.mark.parametrize("family", ["qwen3-moe", "deepseek-v3"])
def test_logits(family: TinyFamily, tmp_path: Path) -> None:
    """float32 within 1e-4 of transformers' on the CPU; bfloat16 (median token) no further from them than 1.5
    times transformers' own bfloat16 logits on the same GPU."""
    write_tiny_checkpoint(tmp_path, family, seed=1, layers=4)
    gpu = torch.device("cuda")
    truth = their_logits(tmp_path, torch.float32, CPU)
    exact = error(our_logits(tmp_path, 1, torch.float32, gpu), truth)
    ours = median_error(our_logits(tmp_path, 1, torch.bfloat16, gpu), truth)
    theirs = median_error(their_logits(tmp_path, torch.bfloat16, gpu), truth)
    print(f"{family}: float32 {exact:.2e}; bfloat16 {ours:.2e}, transformers' {theirs:.2e}")
    assert exact < 1e-4
    assert ours < 1.5 * theirs
