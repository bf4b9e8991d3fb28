"""Every compiled kernel on the GPU against its reference in float64, by relative norm, on fresh random problems."""

from __future__ import annotations

import pytest
import torch

from engine import kernels
from engine.kernels import reference
from tests.engine.kernels.cases import CASES, LARGE, Draw, outputs, relative_error

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

BOUND = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
ALL = {**{f"small {name}": case for name, case in CASES.items()}, **LARGE}


@pytest.mark.parametrize("dtype", BOUND, ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", ALL)
def test_agrees_with_float64(name: str, dtype: torch.dtype) -> None:
    seed = torch.seed() & 0x7FFFFFFF
    problem = ALL[name](Draw("cuda", dtype, seed))
    for got, expected in zip(outputs(kernels, problem), outputs(reference, problem, wide=True), strict=True):
        assert got.shape == expected.shape
        if not got.is_floating_point():
            assert torch.equal(got, expected), f"{seed=}"
        else:
            assert relative_error(got, expected) < BOUND[dtype], f"{seed=}"


@pytest.mark.parametrize("name", LARGE)
def test_replays_in_a_graph(name: str) -> None:
    """A captured call gives the same again on inputs changed in place."""
    first = LARGE[name](Draw("cuda", torch.bfloat16, 1))
    second = LARGE[name](Draw("cuda", torch.bfloat16, 2))
    wanted = outputs(kernels, second)
    results: list[torch.Tensor] = []

    def call() -> None:
        result = getattr(kernels, first.kernel)(*first.arguments)
        results[:] = result if isinstance(result, tuple) else [result]

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for old, new in zip(first.arguments, second.arguments, strict=True):
        if isinstance(old, torch.Tensor):
            old.copy_(new)
    graph.replay()
    torch.cuda.synchronize()
    for got, expected in zip(results, wanted, strict=False):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_sampling_agrees_with_the_reference(top_p: float) -> None:
    logits = torch.randn(16, 151936, device="cuda") * 3
    rows = torch.arange(16, device="cuda")
    temperature = torch.full((16,), 0.8, device="cuda")
    temperature[::3] = 0.0
    chosen = (temperature, torch.full((16,), top_p, device="cuda"), rows * 77 - 5, rows + 1)
    assert torch.equal(kernels.sample(logits, *chosen), reference.sample(logits, *chosen))
    greedy = (temperature * 0, *chosen[1:])
    assert torch.equal(kernels.sample(logits.bfloat16(), *greedy), logits.bfloat16().argmax(-1))
