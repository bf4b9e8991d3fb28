"""Decode steps of a latent-attention mixture of experts (Kimi K2's widths, few layers) beside their floors.

    python -m tests.benchmarks.gpu_decode_mla [--batches 1,8,32] [--layers 2] [--out result.json]

As gpu_decode.py, for the DeepSeek-V3 family in bf16: absorbed projections, a shared expert, sigmoid routing.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from torch import Tensor

from engine import kernels as k
from tests.benchmarks.gpu_decode import EPS, capture, normal, profile, replay_ms


@dataclass(frozen=True)
class Shape:
    """Kimi K2's widths."""

    layers: int = 2
    hidden: int = 7168
    experts: int = 384
    top_k: int = 8
    inner: int = 2048
    heads: int = 64
    q_rank: int = 1536
    latent: int = 512
    rope: int = 64
    nope: int = 128
    value: int = 128
    vocab: int = 163840
    block_size: int = 16
    context: int = 192
    max_context: int = 512


@dataclass(frozen=True)
class Layer:
    """One layer's weights; ``absorb_k`` [heads, nope, latent] and ``absorb_v`` [heads, latent, value]."""

    down_project: Tensor
    q_norm: Tensor
    q_up: Tensor
    kv_norm: Tensor
    absorb_k: Tensor
    absorb_v: Tensor
    out: Tensor
    router: Tensor
    bias: Tensor
    shared_gate_up: Tensor
    shared_down: Tensor
    gate_up: Tensor
    down: Tensor
    cache: Tensor


def random_layer(s: Shape, blocks: int) -> Layer:
    return Layer(
        down_project=normal(s.q_rank + s.latent + s.rope, s.hidden),
        q_norm=torch.ones(s.q_rank, dtype=torch.bfloat16, device="cuda"),
        q_up=normal(s.heads * (s.nope + s.rope), s.q_rank),
        kv_norm=torch.ones(s.latent, dtype=torch.bfloat16, device="cuda"),
        absorb_k=normal(s.heads, s.nope, s.latent),
        absorb_v=normal(s.heads, s.latent, s.value),
        out=normal(s.hidden, s.heads * s.value),
        router=normal(s.experts, s.hidden),
        bias=torch.zeros(s.experts, device="cuda"),
        shared_gate_up=normal(2 * s.inner, s.hidden),
        shared_down=normal(s.hidden, s.inner),
        gate_up=normal(s.experts, 2 * s.inner, s.hidden),
        down=normal(s.experts, s.hidden, s.inner),
        cache=normal(blocks, s.block_size, s.latent + s.rope, std=1.0),
    )


def layer_step(
    s: Shape,
    layer: Layer,
    normed: Tensor,
    residual: Tensor,
    norm: Tensor,
    tables: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """One layer of a decode step: (normed, residual, expert ids)."""
    cos_sin, positions, slots, table, context = tables
    q_low, compressed = torch.split(k.linear(normed, layer.down_project), [s.q_rank, s.latent + s.rope], dim=1)
    q = k.linear(k.rms_norm(q_low, layer.q_norm, EPS), layer.q_up).view(-1, s.heads, s.nope + s.rope)
    q_nope, q_rope = torch.split(q, [s.nope, s.rope], dim=2)
    q_rope = k.mla_norm_rope_cache(
        q_rope, compressed, layer.kv_norm, cos_sin, positions, layer.cache, slots, EPS, interleaved=True
    )
    q_latent = torch.bmm(q_nope.transpose(0, 1), layer.absorb_k).transpose(0, 1)
    scale = (s.nope + s.rope) ** -0.5
    mixed = k.mla_decode_attention(q_latent, q_rope, layer.cache, table, context, scale)
    value = torch.bmm(mixed.transpose(0, 1), layer.absorb_v).transpose(0, 1).flatten(1)
    out = k.linear(value, layer.out)
    normed, residual, logits = k.add_norm_router(out, residual, norm, layer.router, EPS)
    weights, ids = k.route_grouped_sigmoid_topk(logits, layer.bias, s.top_k, 1, 1, 2.5, True)
    shared = k.linear(k.silu_mul(k.linear(normed, layer.shared_gate_up)), layer.shared_down)
    routed = k.fused_moe(normed, weights, ids, layer.gate_up, layer.down, 0, s.experts)
    normed, residual = k.add_rms_norm(routed + shared, residual, norm, EPS)
    return normed, residual, ids


def layer_bytes(s: Shape, layer: Layer, distinct: float, context_tokens: int) -> float:
    """The bytes that one layer's decode step must read."""
    dense = sum(
        getattr(layer, field.name).numel() for field in fields(layer) if field.name not in ("gate_up", "down", "cache")
    )
    return 2.0 * float(dense + distinct * 3 * s.inner * s.hidden + context_tokens * (s.latent + s.rope))


def measure(s: Shape, layers: list[Layer], head: Tensor, size: int, rate: float) -> dict[str, object]:
    """Time of a step of ``size`` sequences, its floor, and what each kernel adds."""
    pages = s.max_context // s.block_size
    table = torch.randperm(size * pages, device="cuda").view(size, pages).int()
    context = torch.full((size,), s.context, dtype=torch.int32, device="cuda")
    positions = (context - 1).long()
    slots = table[:, (s.context - 1) // s.block_size].long() * s.block_size + (s.context - 1) % s.block_size
    tables = (torch.rand(s.max_context, s.rope, device="cuda"), positions, slots, table, context)
    hidden = normal(size, s.hidden, std=1.0)
    norm = torch.ones(s.hidden, dtype=torch.bfloat16, device="cuda")
    seen: list[Tensor] = []

    def step() -> Tensor:
        residual, normed = hidden, k.rms_norm(hidden, norm, EPS)
        for layer in layers:
            normed, residual, ids = layer_step(s, layer, normed, residual, norm, tables)
            seen.append(ids)
        return k.linear(normed, head)

    step()
    distinct = statistics.mean(len(torch.unique(ids)) for ids in seen)
    graph = capture(step)
    per_layer = layer_bytes(s, layers[0], distinct, size * s.context)
    return {
        "concurrency": size,
        "step_ms": replay_ms(graph),
        "floor_ms": (s.layers * per_layer + 2 * head.numel()) / rate / 1e6,
        "distinct_experts": distinct,
        "kernels_us": profile(graph),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--batches", default="1,2,4,8,16,32,64,128")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=4300.0, help="GB/s, the copy rate that the floor divides by")
    parser.add_argument("--details", type=int, default=0, help="kernels to list per batch size")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    s = Shape(layers=chosen.layers)
    sizes = [int(size) for size in chosen.batches.split(",")]
    layers = [random_layer(s, max(sizes) * s.max_context // s.block_size) for _ in range(s.layers)]
    head = normal(s.vocab, s.hidden)
    rows = [measure(s, layers, head, size, chosen.rate) for size in sizes]
    for row in rows:
        print(
            f"C={row['concurrency']:<4} {row['step_ms']:7.3f} ms  floor {row['floor_ms']:7.3f}"
            f"  distinct experts {row['distinct_experts']:6.1f}"
        )
        listed = list(dict(row["kernels_us"]).items())[: chosen.details]  # type: ignore[call-overload]
        for name, (launches, added, resident) in listed:
            print(f"      {launches:4d} x {added:7.2f} us ({resident:7.2f} resident)  {name}")
    if chosen.out:
        chosen.out.write_text(json.dumps({"shape": asdict(s), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
