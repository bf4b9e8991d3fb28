"""Prefill of whole prompts on the GPU: each part of one layer beside the matrix rate, and tile sweeps of the experts.

    python -m tests.benchmarks.gpu_prefill [--prompts 8] [--length 4096] [--sweep] [--out result.json]

Dense operations are those of the linear layers and the experts; attention's (causal: half the square) count apart.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from engine import kernels
from engine.kernels.fused.config import ExpertTiles, PrefillTiles, expert_tiles
from engine.kernels.fused.moe import down, gate_up
from engine.kernels.fused.moe_blocks import sort_into_blocks
from engine.kernels.fused.prefill import launch_prefill
from tests.benchmarks.gpu_decode import Model, Shape, capture, replay_ms

# (rows, cols, step, warps, stages)
GATE_UP = [(128, 64, 64, 8, 4), (128, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 128, 32, 8, 6)]
DOWN = [
    (128, 128, 64, 8, 4), (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3), (128, 128, 128, 8, 3),
]  # fmt: skip


# (rows, span, warps, stages)
ATTENTION = [
    (128, 64, 8, 3), (128, 64, 8, 2), (128, 64, 4, 3), (128, 128, 8, 2), (128, 128, 8, 3), (64, 64, 4, 3),
    (64, 128, 4, 2), (256, 64, 8, 3),
]  # fmt: skip


def timed(work: Callable[[], object]) -> float:
    """Milliseconds of one call, replayed from a graph."""
    return replay_ms(capture(work), replays=3)


def library_attention(qkv: Tensor, shape: Shape, prompts: int, backend: SDPBackend) -> Tensor:
    heads = qkv.view(prompts, -1, shape.q_heads + 2 * shape.kv_heads, shape.head_dim).transpose(1, 2)
    q, k, v = torch.split(heads, [shape.q_heads, shape.kv_heads, shape.kv_heads], dim=1)
    with sdpa_kernel(backend):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def sweep(x: Tensor, ids: Tensor, weights: tuple[Tensor, Tensor], operations: float) -> dict[str, float]:
    """Matrix rate in TFLOP/s of each tile for the two products of the experts."""
    pairs, inner = ids.numel(), weights[1].shape[2]
    hidden = torch.randn(pairs, inner, device="cuda").bfloat16()
    rates: dict[str, float] = {}
    for shapes, share, name in ((GATE_UP, 2 / 3, "gate_up"), (DOWN, 1 / 3, "down")):
        for rows, cols, step, warps, stages in shapes:
            tiles = ExpertTiles(rows, cols, step, warps, stages, swap=False)
            blocks = sort_into_blocks(ids, rows, 0, len(weights[0]))
            work: Callable[[], Tensor] = (
                partial(gate_up, x, weights[0], blocks, pairs, 0, tiles)
                if name == "gate_up"
                else partial(down, hidden, weights[1], blocks, 0, tiles)
            )
            rates[f"{name} {tiles}"] = share * operations / timed(work) / 1e9
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    prompts, length = chosen.prompts, chosen.length
    tokens = prompts * length
    s = replace(Shape(), layers=1, max_context=length)
    layer = Model(s, prompts).layers[0]
    x = torch.randn(tokens, s.hidden, device="cuda").bfloat16()
    residual = torch.randn_like(x)
    positions = torch.arange(length, device="cuda").repeat(prompts)
    pages = length // s.block_size
    table = torch.randperm(prompts * pages, device="cuda").view(prompts, pages).int()
    slots = (table[:, :, None] * s.block_size + torch.arange(s.block_size, device="cuda")).reshape(-1).long()
    cos_sin = torch.rand(length, s.head_dim, device="cuda")
    context = torch.full((prompts,), length, dtype=torch.int32, device="cuda")
    start = (torch.arange(prompts + 1, device="cuda") * length).int()
    scale = s.head_dim**-0.5
    qkv = kernels.linear(x, layer.qkv)
    norms = (layer.q_norm, layer.k_norm)
    caches = (layer.k_cache, layer.v_cache)
    q = kernels.qk_norm_rope_cache(qkv, *norms, cos_sin, positions, *caches, slots, 1e-6)
    mixed = q.flatten(1)
    logits = functional.linear(x, layer.router).float()
    weights, ids = kernels.route_softmax_topk(logits, s.top_k, True)

    linear_operations = 2.0 * tokens * layer.qkv.numel() + 2.0 * tokens * layer.out.numel()
    expert_operations = 2.0 * tokens * s.top_k * 3 * s.inner * s.hidden
    attention_operations = 2.0 * prompts * length**2 * s.q_heads * s.head_dim
    parts = {
        "add norm": timed(lambda: kernels.add_rms_norm(x, residual, layer.input_norm, 1e-6)),
        "qkv": timed(lambda: kernels.linear(x, layer.qkv)),
        "rope and cache": timed(
            lambda: kernels.qk_norm_rope_cache(qkv, *norms, cos_sin, positions, *caches, slots, 1e-6)
        ),
        "attention": timed(lambda: kernels.prefill_attention(q, *caches, table, context, start, scale)),
        "out": timed(lambda: kernels.linear(mixed, layer.out)),
        "add norm router": timed(lambda: kernels.add_norm_router(x, residual, layer.post_norm, layer.router, 1e-6)),
        "routing": timed(lambda: kernels.route_softmax_topk(logits, s.top_k, True)),
        "experts": timed(lambda: kernels.fused_moe(x, weights, ids, layer.gate_up, layer.down, 0, s.experts)),
    }
    total = sum(parts.values())
    dense = linear_operations + expert_operations
    print(f"{prompts} x {length} tokens, one layer: {total:.2f} ms, dense {dense / total / 1e9:.0f} TFLOP/s")
    print(f"without attention: {dense / (total - parts['attention']) / 1e9:.0f} TFLOP/s")
    print(f"attention {attention_operations / parts['attention'] / 1e9:.0f} TFLOP/s")
    print(f"experts {expert_operations / parts['experts'] / 1e9:.0f} TFLOP/s")
    for name, milliseconds in parts.items():
        print(f"    {milliseconds:8.3f} ms  {name}")
    library = {}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        milliseconds = timed(lambda b=backend: library_attention(qkv, s, prompts, b))  # type: ignore[misc]
        library[backend.name] = attention_operations / milliseconds / 1e9
        print(f"    {milliseconds:8.3f} ms  {backend.name}: {library[backend.name]:.0f} TFLOP/s")
    rates = {}
    if chosen.sweep:
        print("tiles in use:", *expert_tiles(tokens * s.top_k, s.experts))
        rates = sweep(x, ids, (layer.gate_up, layer.down), expert_operations)
        for shape in ATTENTION:
            tiles = PrefillTiles(*shape)
            milliseconds = timed(partial(launch_prefill, q, caches, table, context, start, scale, tiles))
            rates[f"attention {tiles}"] = attention_operations / milliseconds / 1e9
        for name, rate in sorted(rates.items(), key=lambda item: -item[1]):
            print(f"    {rate:8.0f} TFLOP/s  {name}")
    if chosen.out:
        result = {"parts_ms": parts, "library_tflops": library, "sweep_tflops": rates, "total_ms": total}
        chosen.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
