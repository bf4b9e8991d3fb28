"""Random problems for every kernel, shared by the interpreter's tests and the GPU's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

EPS = 1e-6


@dataclass(frozen=True)
class Problem:
    """A call of one kernel: its arguments, and which of them it writes."""

    kernel: str
    arguments: tuple[Any, ...]
    written: tuple[int, ...] = ()


class Draw:
    """Fresh random tensors of one type on one device."""

    def __init__(self, device: str, dtype: torch.dtype, seed: int) -> None:
        self.device, self.dtype = device, dtype
        self.generator = torch.Generator(device).manual_seed(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(*shape, device=self.device, generator=self.generator) * scale).to(self.dtype)

    def integers(self, high: int, *shape: int, low: int = 0) -> Tensor:
        drawn = torch.randint(low, high, shape, device=self.device, generator=self.generator)
        return drawn.int()

    def permutation(self, count: int) -> Tensor:
        return torch.randperm(count, device=self.device, generator=self.generator)

    def cos_sin(self, positions: int, dim: int) -> Tensor:
        angle = torch.rand(positions, dim // 2, device=self.device, generator=self.generator) * 6.3
        return torch.cat((angle.cos(), angle.sin()), dim=-1)


def norm(draw: Draw, *shape: int) -> Problem:
    return Problem("rms_norm", (draw.normal(*shape, scale=3.0), draw.normal(shape[-1]), EPS))


def add_norm(draw: Draw, tokens: int, width: int) -> Problem:
    x, residual = draw.normal(tokens, width), draw.normal(tokens, width, scale=5.0)
    return Problem("add_rms_norm", (x, residual, draw.normal(width), EPS))


def combine_norm(draw: Draw, tokens: int, k: int, width: int, experts: int, offset: int, local: int) -> Problem:
    ids = torch.stack([draw.permutation(experts)[:k] for _ in range(tokens)]).int()
    weights = torch.rand(tokens, k, device=draw.device, generator=draw.generator)
    parts = draw.normal(tokens, k, width)
    foreign = (ids < offset) | (ids >= offset + local)
    parts[foreign] = float("nan")  # Unwritten rows may hold anything.
    residual = draw.normal(tokens, width)
    return Problem("combine_add_rms_norm", (parts, weights, ids, residual, draw.normal(width), EPS, offset, local))


def add_norm_router(draw: Draw, tokens: int, width: int, experts: int, wide_router: bool = False) -> Problem:
    x, residual = draw.normal(tokens, width), draw.normal(tokens, width)
    router = draw.normal(experts, width, scale=width**-0.5)
    if wide_router:
        router = router.float() * 1.001  # digits that a two-byte type does not have
    return Problem("add_norm_router", (x, residual, draw.normal(width), router, EPS))


def linear(draw: Draw, rows: int, depth: int, width: int) -> Problem:
    return Problem("linear", (draw.normal(rows, depth), draw.normal(width, depth, scale=depth**-0.5)))


def silu(draw: Draw, tokens: int, inner: int) -> Problem:
    return Problem("silu_mul", (draw.normal(tokens, 2 * inner, scale=2.0),))


def rope(draw: Draw, tokens: int, q_heads: int, kv_heads: int, dim: int, normed: bool) -> Problem:
    blocks, size = tokens // 4 + 2, 4
    qkv = draw.normal(tokens, (q_heads + 2 * kv_heads) * dim)
    slots = draw.permutation(blocks * size)[:tokens].clone()
    slots[::5] = -1
    weights = (draw.normal(dim), draw.normal(dim)) if normed else (None, None)
    caches = [draw.normal(blocks, size, kv_heads, dim) for _ in range(2)]
    arguments = (qkv, *weights, draw.cos_sin(64, dim), draw.integers(64, tokens).long(), *caches, slots, EPS)
    return Problem("qk_norm_rope_cache", arguments, written=(5, 6))


def _pages(draw: Draw, lengths: list[int], size: int) -> tuple[int, Tensor]:
    """How many blocks there are, and a table that scatters each sequence over them; unused entries point nowhere."""
    most = max(-(-length // size) for length in lengths) + 1
    blocks = most * len(lengths) + 3
    table = draw.permutation(blocks)[: most * len(lengths)].view(len(lengths), most).int()
    for row, length in enumerate(lengths):
        table[row, -(-length // size) :] = 2**30
    return blocks, table


def decode(draw: Draw, lengths: list[int], q_heads: int, kv_heads: int, dim: int, size: int) -> Problem:
    blocks, table = _pages(draw, lengths, size)
    caches = [draw.normal(blocks, size, kv_heads, dim) for _ in range(2)]
    context = torch.tensor(lengths, dtype=torch.int32, device=draw.device)
    q = draw.normal(len(lengths), q_heads, dim, scale=2.0)
    return Problem("decode_attention", (q, *caches, table, context, dim**-0.5))


def rope_decode(
    draw: Draw, lengths: list[int], q_heads: int, kv_heads: int, dim: int, size: int, normed: bool = True
) -> Problem:
    """The new token is the last of each context, and not in the cache yet."""
    blocks, table = _pages(draw, lengths, size)
    caches = [draw.normal(blocks, size, kv_heads, dim) for _ in range(2)]
    slots = [int(table[row, (n - 1) // size]) * size + (n - 1) % size if n else -1 for row, n in enumerate(lengths)]
    context = torch.tensor(lengths, dtype=torch.int32, device=draw.device)
    weights = (draw.normal(dim), draw.normal(dim)) if normed else (None, None)
    qkv = draw.normal(len(lengths), (q_heads + 2 * kv_heads) * dim)
    arguments = (
        qkv,
        *weights,
        draw.cos_sin(1024, dim),
        (context - 1).clamp_min(0).long(),
        *caches,
        torch.tensor(slots, device=draw.device),
        table,
        context,
        dim**-0.5,
        EPS,
    )
    return Problem("rope_decode_attention", arguments, written=(5, 6))


def prefill(draw: Draw, chunks: list[tuple[int, int]], q_heads: int, kv_heads: int, dim: int, size: int) -> Problem:
    """``chunks`` are (context, queries); two surplus queries at the end belong to nobody."""
    blocks, table = _pages(draw, [context for context, _ in chunks], size)
    caches = [draw.normal(blocks, size, kv_heads, dim) for _ in range(2)]
    context = torch.tensor([context for context, _ in chunks], dtype=torch.int32, device=draw.device)
    counts = torch.tensor([0, *(queries for _, queries in chunks)], device=draw.device)
    start = counts.cumsum(0).int()
    q = draw.normal(int(start[-1]) + 2, q_heads, dim, scale=2.0)
    return Problem("prefill_attention", (q, *caches, table, context, start, dim**-0.5))


def mla_rope(draw: Draw, tokens: int, heads: int, rank: int, rotary: int, interleaved: bool) -> Problem:
    blocks, size = tokens // 4 + 2, 4
    slots = draw.permutation(blocks * size)[:tokens].clone()
    slots[1::4] = -1
    wide = draw.normal(tokens, heads, rotary + 8)
    arguments = (
        wide[..., 8:],
        draw.normal(tokens, rank + rotary),
        draw.normal(rank),
        draw.cos_sin(64, rotary),
        draw.integers(64, tokens).long(),
        draw.normal(blocks, size, rank + rotary),
        slots,
        EPS,
        interleaved,
    )
    return Problem("mla_norm_rope_cache", arguments, written=(5,))


def mla_decode(draw: Draw, lengths: list[int], heads: int, rank: int, rotary: int, size: int) -> Problem:
    blocks, table = _pages(draw, lengths, size)
    context = torch.tensor(lengths, dtype=torch.int32, device=draw.device)
    q = [draw.normal(len(lengths), heads, part, scale=2.0) for part in (rank, rotary)]
    cache = draw.normal(blocks, size, rank + rotary)
    return Problem("mla_decode_attention", (*q, cache, table, context, (rank + rotary) ** -0.5))


def mla_prefill(draw: Draw, chunks: list[tuple[int, int]], heads: int, rank: int, rotary: int, size: int) -> Problem:
    blocks, table = _pages(draw, [context for context, _ in chunks], size)
    context = torch.tensor([context for context, _ in chunks], dtype=torch.int32, device=draw.device)
    start = torch.tensor([0, *(queries for _, queries in chunks)], device=draw.device).cumsum(0).int()
    q = [draw.normal(int(start[-1]) + 2, heads, part, scale=2.0) for part in (rank, rotary)]
    cache = draw.normal(blocks, size, rank + rotary)
    return Problem("mla_prefill_attention", (*q, cache, table, context, start, (rank + rotary) ** -0.5))


def softmax_routing(draw: Draw, tokens: int, experts: int, k: int, renormalise: bool) -> Problem:
    return Problem("route_softmax_topk", (draw.normal(tokens, experts, scale=2.0), k, renormalise))


def grouped_routing(draw: Draw, tokens: int, experts: int, k: int, groups: int, top: int, renormalise: bool) -> Problem:
    bias = draw.normal(experts, scale=0.1).float()
    logits = draw.normal(tokens, experts)
    return Problem("route_grouped_sigmoid_topk", (logits, bias, k, groups, top, 2.5, renormalise))


def moe(
    draw: Draw,
    tokens: int,
    k: int,
    width: int,
    inner: int,
    experts: int,
    offset: int,
    local: int,
    favourites: int | None = None,
) -> Problem:
    """With ``favourites`` all tokens choose among so few experts, and the others stay empty."""
    pool = draw.permutation(experts)[: favourites or experts]
    ids = torch.stack([pool[draw.permutation(len(pool))[:k]] for _ in range(tokens)]).int()
    weights = torch.rand(tokens, k, device=draw.device, generator=draw.generator)
    first = draw.normal(local, 2 * inner, width, scale=width**-0.5)
    second = draw.normal(local, width, inner, scale=inner**-0.5)
    return Problem("fused_moe", (draw.normal(tokens, width), weights, ids, first, second, offset, local))


Case = Callable[[Draw], Problem]

CASES: dict[str, Case] = {
    "norm": lambda d: norm(d, 5, 64),
    "norm, odd width": lambda d: norm(d, 2, 3, 100),
    "add norm": lambda d: add_norm(d, 4, 96),
    "combine": lambda d: combine_norm(d, 5, 3, 80, 16, 0, 16),
    "combine, half the experts": lambda d: combine_norm(d, 5, 3, 80, 16, 4, 8),
    "add norm router": lambda d: add_norm_router(d, 5, 128, 16),
    "add norm router, odd": lambda d: add_norm_router(d, 19, 200, 24),
    "add norm router, more rows": lambda d: add_norm_router(d, 40, 128, 16),
    "add norm router, float32 router": lambda d: add_norm_router(d, 5, 128, 16, True),
    "add norm router, many elements": lambda d: add_norm_router(d, 280, 256, 24),
    "add norm router, many elements, float32 router": lambda d: add_norm_router(d, 280, 256, 24, True),
    "add norm router, many rows, float32 router": lambda d: add_norm_router(d, 530, 128, 16, True),
    "linear": lambda d: linear(d, 3, 128, 96),
    "linear, odd": lambda d: linear(d, 21, 200, 50),
    "silu": lambda d: silu(d, 3, 40),
    "rope": lambda d: rope(d, 7, 4, 2, 32, True),
    "rope without norm, odd half": lambda d: rope(d, 6, 6, 1, 24, False),
    "decode": lambda d: decode(d, [1, 70, 0, 33], 8, 2, 32, 16),
    "decode, split": lambda d: decode(d, [300], 4, 1, 16, 8),
    "decode, many rows": lambda d: decode(d, [5, 3] * 33, 4, 4, 16, 4),
    "decode, odd group and head": lambda d: decode(d, [17, 130], 6, 2, 24, 8),
    "rope decode": lambda d: rope_decode(d, [1, 70, 0, 33], 8, 2, 32, 16),
    "rope decode, split": lambda d: rope_decode(d, [150], 4, 1, 16, 8),
    "rope decode, one split, odd, no norm": lambda d: rope_decode(d, [3, 66] * 17, 6, 2, 24, 8, False),
    "prefill": lambda d: prefill(d, [(40, 40), (70, 9), (3, 3)], 4, 2, 32, 16),
    "prefill, one query and none": lambda d: prefill(d, [(50, 1), (12, 0), (90, 66)], 6, 2, 16, 8),
    "mla rope": lambda d: mla_rope(d, 6, 3, 48, 16, True),
    "mla rope, halves": lambda d: mla_rope(d, 6, 3, 32, 8, False),
    "mla decode": lambda d: mla_decode(d, [1, 60, 0, 33], 4, 48, 16, 8),
    "mla decode, split": lambda d: mla_decode(d, [200], 20, 32, 8, 16),
    "mla prefill": lambda d: mla_prefill(d, [(20, 20), (37, 5), (4, 0), (3, 3)], 4, 32, 16, 8),
    "mla prefill, odd heads": lambda d: mla_prefill(d, [(18, 7), (9, 9)], 3, 32, 8, 4),
    "softmax routing": lambda d: softmax_routing(d, 9, 128, 8, True),
    "softmax routing, odd": lambda d: softmax_routing(d, 3, 10, 3, False),
    "grouped routing": lambda d: grouped_routing(d, 7, 32, 4, 4, 2, True),
    "grouped routing, one group": lambda d: grouped_routing(d, 7, 24, 5, 1, 1, False),
    "moe, one token": lambda d: moe(d, 1, 4, 64, 48, 8, 0, 8),
    "moe, sorted": lambda d: moe(d, 20, 4, 64, 48, 8, 0, 8),
    "moe, empty experts": lambda d: moe(d, 30, 2, 64, 32, 16, 0, 16, favourites=3),
    "moe, odd sizes": lambda d: moe(d, 17, 3, 72, 40, 6, 0, 6),
    "moe, other ranks' experts": lambda d: moe(d, 20, 4, 64, 32, 16, 4, 8),
    "moe, other ranks' experts, few": lambda d: moe(d, 3, 4, 64, 32, 16, 8, 4),
    "moe, no local expert": lambda d: moe(d, 20, 2, 64, 32, 16, 12, 4, favourites=4),
    "moe, prefill": lambda d: moe(d, 260, 4, 64, 32, 8, 0, 8),
    "moe, prefill, other ranks' experts": lambda d: moe(d, 260, 4, 64, 32, 8, 2, 4),
}

# The shapes that the engine serves, for the GPU.
LARGE: dict[str, Case] = {
    "norm": lambda d: norm(d, 33, 2048),
    "add norm": lambda d: add_norm(d, 128, 7168),
    "combine": lambda d: combine_norm(d, 33, 8, 2048, 128, 0, 128),
    "add norm router": lambda d: add_norm_router(d, 29, 2048, 128),
    "add norm router 128": lambda d: add_norm_router(d, 128, 2048, 128),
    "add norm router 1000": lambda d: add_norm_router(d, 1000, 2048, 128),
    "add norm router, 384": lambda d: add_norm_router(d, 3, 7168, 384),
    "add norm router, 384, float32 router": lambda d: add_norm_router(d, 3, 7168, 384, True),
    "add norm router 128, 384, float32 router": lambda d: add_norm_router(d, 128, 7168, 384, True),
    "add norm router 1000, 384, float32 router": lambda d: add_norm_router(d, 1000, 7168, 384, True),
    "linear 1": lambda d: linear(d, 1, 2048, 5120),
    "linear 32": lambda d: linear(d, 32, 4096, 2048),
    "linear 100": lambda d: linear(d, 100, 2048, 5120),
    "rope": lambda d: rope(d, 65, 32, 4, 128, True),
    "rope, odd heads": lambda d: rope(d, 33, 25, 5, 128, False),
    "decode 1": lambda d: decode(d, [1000], 32, 4, 128, 16),
    "decode 32": lambda d: decode(d, [(97 * i) % 600 for i in range(32)], 32, 4, 128, 64),
    "decode 128": lambda d: decode(d, [(97 * i) % 300 for i in range(128)], 32, 4, 128, 16),
    "rope decode 1": lambda d: rope_decode(d, [1000], 32, 4, 128, 16),
    "rope decode 32": lambda d: rope_decode(d, [(97 * i) % 600 for i in range(32)], 32, 4, 128, 64),
    "rope decode 128": lambda d: rope_decode(d, [(97 * i) % 300 for i in range(128)], 32, 4, 128, 16),
    "prefill": lambda d: prefill(d, [(1000, 1000), (777, 300), (64, 64)], 32, 4, 128, 16),
    "prefill, few and none": lambda d: prefill(
        d, [(40, 40), (70, 9), (3, 3), (300, 1), (12, 0), (129, 128), (128, 16), (257, 3)], 8, 2, 128, 16
    ),
    "prefill, odd group, narrow heads": lambda d: prefill(d, [(40, 40), (70, 9), (3, 3), (500, 300)], 6, 2, 64, 8),
    "prefill, no group, large pages": lambda d: prefill(d, [(400, 40), (70, 9), (3, 3), (500, 300)], 4, 4, 128, 64),
    "mla rope": lambda d: mla_rope(d, 33, 64, 512, 64, True),
    "mla decode": lambda d: mla_decode(d, [1000], 64, 512, 64, 64),
    "mla decode 32": lambda d: mla_decode(d, [(97 * i) % 500 for i in range(32)], 64, 512, 64, 16),
    "mla prefill": lambda d: mla_prefill(d, [(300, 300), (500, 100)], 64, 512, 64, 16),
    "softmax routing": lambda d: softmax_routing(d, 128, 128, 8, True),
    "grouped routing": lambda d: grouped_routing(d, 64, 384, 8, 8, 4, True),
    "moe 1": lambda d: moe(d, 1, 8, 2048, 768, 128, 0, 128),
    "moe 8": lambda d: moe(d, 8, 8, 2048, 768, 128, 0, 128),
    "moe 32": lambda d: moe(d, 32, 8, 2048, 768, 128, 0, 128),
    "moe 128": lambda d: moe(d, 128, 8, 2048, 768, 128, 0, 128),
    "moe 64, half the experts": lambda d: moe(d, 64, 8, 2048, 768, 128, 64, 64),
    "moe 700": lambda d: moe(d, 700, 8, 2048, 768, 128, 0, 128),
    "moe 4096": lambda d: moe(d, 4096, 8, 2048, 768, 128, 0, 128),
    "moe, 384 experts": lambda d: moe(d, 5, 8, 7168, 2048, 48, 0, 48),
}


def outputs(kernels: Any, problem: Problem, wide: bool = False) -> list[Tensor]:
    """What the kernel returns and what it wrote in place, with float64 arguments if ``wide``; inputs are left alone."""

    def prepared(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        copy = value.clone() if value.is_contiguous() else value
        return copy.double() if wide and value.is_floating_point() else copy

    arguments = [prepared(value) for value in problem.arguments]
    result = getattr(kernels, problem.kernel)(*arguments)
    returned = list(result) if isinstance(result, tuple) else [result]
    return returned + [arguments[index] for index in problem.written]


def relative_error(got: Tensor, expected: Tensor) -> float:
    """The norm of the difference over the norm of what was expected; infinite if anything is not a number."""
    got, expected = got.double(), expected.double()
    if bool(got.isnan().any()):
        return float("inf")
    return float((got - expected).norm() / expected.norm().clamp_min(1e-30))
