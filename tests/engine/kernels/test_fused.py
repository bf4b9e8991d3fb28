"""Every Triton kernel under the interpreter against its plain torch reference, on fresh random problems."""

from __future__ import annotations

import pytest
import torch

from engine.kernels import reference
from tests.engine.kernels.cases import CASES, Draw, outputs, relative_error

fused = pytest.importorskip("engine.kernels.fused")

pytestmark = pytest.mark.skipif(
    not fused.launch.INTERPRETED, reason="compiled kernels are tested on the GPU (pytest -m gpu)"
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_reference(name: str, dtype: torch.dtype) -> None:
    seed = torch.seed() & 0x7FFFFFFF
    problem = CASES[name](Draw("cpu", dtype, seed))
    for got, expected in zip(outputs(fused, problem), outputs(reference, problem, wide=True), strict=True):
        assert got.shape == expected.shape
        if not got.is_floating_point():
            assert torch.equal(got, expected)
        else:
            assert relative_error(got, expected) < (2e-6 if dtype == torch.float32 else 1e-2), f"{seed=}"


def test_the_reference_takes_a_router_wider_than_the_model() -> None:
    problem = CASES["add norm router, float32 router"](Draw("cpu", torch.bfloat16, 1))
    for got, expected in zip(outputs(reference, problem), outputs(reference, problem, wide=True), strict=True):
        assert relative_error(got, expected) < 1e-2
