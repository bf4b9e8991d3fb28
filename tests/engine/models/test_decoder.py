"""The forward pass in one process, against transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.engine.models.decoding import error, median_error, our_logits, their_logits

CPU = torch.device("cpu")


@pytest.mark.parametrize("stages", [1, 2])
def test_prefill_in_chunks_and_decode_give_transformers_logits(tiny_checkpoint: Path, stages: int) -> None:
    ours = our_logits(tiny_checkpoint, stages, torch.float32, CPU)
    theirs = their_logits(tiny_checkpoint, torch.float32, CPU)
    assert error(ours, theirs) < 1e-5
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


def test_bfloat16_is_as_near_to_float32_as_transformers_is(tiny_checkpoint: Path) -> None:
    truth = their_logits(tiny_checkpoint, torch.float32, CPU)
    theirs = median_error(their_logits(tiny_checkpoint, torch.bfloat16, CPU), truth)
    assert median_error(our_logits(tiny_checkpoint, 1, torch.bfloat16, CPU), truth) < 1.5 * theirs
