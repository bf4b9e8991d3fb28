"""Sampling: exact greedy, the right distribution, and draws that do not depend on the batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.kernels import reference

fused = pytest.importorskip("engine.kernels.fused")
BOTH = pytest.mark.parametrize("kernels", [reference, fused], ids=["reference", "fused"])

pytestmark = pytest.mark.skipif(
    not fused.launch.INTERPRETED, reason="compiled kernels are tested on the GPU (pytest -m gpu)"
)


def settings(rows: int, temperature: float, top_p: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        torch.full((rows,), temperature),
        torch.full((rows,), top_p),
        torch.arange(rows) * 7919 - 3,
        torch.arange(rows) + 5,
    )


@BOTH
def test_greedy_is_the_exact_first_argmax(kernels: object) -> None:
    logits = torch.randn(5, 10_000).bfloat16()
    logits[1, [4000, 9000]] = 50.0
    assert torch.equal(kernels.sample(logits, *settings(5, 0.0, 1.0)), logits.argmax(-1))  # type: ignore[attr-defined]
    assert kernels.sample(logits, *settings(5, 0.0, 0.3))[1] == 4000  # type: ignore[attr-defined]


@pytest.mark.parametrize("top_p", [1.0, 0.7])
def test_both_draw_the_same_tokens(top_p: float) -> None:
    logits = torch.randn(10, 5000) * 3
    chosen = settings(10, 0.9, top_p)
    chosen[0][::4] = 0.0
    assert torch.equal(fused.sample(logits, *chosen), reference.sample(logits, *chosen))


@BOTH
def test_a_draw_does_not_depend_on_the_batch(kernels: object) -> None:
    logits = torch.randn(6, 5000)
    chosen = settings(6, 1.0, 0.9)
    together = kernels.sample(logits, *chosen)  # type: ignore[attr-defined]
    alone = kernels.sample(logits[3:4], *(value[3:4] for value in chosen))  # type: ignore[attr-defined]
    assert together[3] == alone[0]
    assert len(set(together.tolist())) > 1


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_frequencies_follow_the_nucleus(top_p: float) -> None:
    rows, vocab = 20_000, 50
    logits = torch.randn(vocab) * 2
    draws = reference.sample(
        logits.expand(rows, -1),
        torch.full((rows,), 1.3),
        torch.full((rows,), top_p),
        torch.full((rows,), 11),
        torch.arange(rows),
    )
    probability = (logits / 1.3).softmax(-1)
    order = probability.argsort(descending=True)
    kept = order[probability[order].cumsum(0) - probability[order] < top_p]
    wanted = torch.zeros(vocab)
    wanted[kept] = probability[kept] / probability[kept].sum()
    seen = torch.bincount(draws, minlength=vocab) / rows
    assert bool((seen[wanted == 0] == 0).all())
    # Five standard deviations of a binomial share.
    assert bool(((seen - wanted).abs() <= 5 * (wanted * (1 - wanted) / rows).sqrt() + 1e-9).all())
