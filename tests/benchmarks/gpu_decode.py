"""Decode steps of a mixture-of-experts model built straight from the kernels, timed in CUDA graphs beside their floors.

    python -m tests.benchmarks.gpu_decode [--batches 1,8,32] [--layers 48] [--out result.json]

Needs a CUDA device, torch and triton only. Weights are random, the routing a random router's. The inter-token time
is the replay of one captured step with lm_head and sampling; the floor, the bytes a step must read over ``--rate``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from engine import kernels as device_kernels
from engine.kernels import reference

EPS = 1e-6


@dataclass(frozen=True)
class Shape:
    """A grouped-query mixture-of-experts model; the defaults are Qwen3-30B-A3B."""

    layers: int = 48
    hidden: int = 2048
    experts: int = 128
    top_k: int = 8
    inner: int = 768
    q_heads: int = 32
    kv_heads: int = 4
    head_dim: int = 128
    vocab: int = 151936
    block_size: int = 16
    context: int = 192
    max_context: int = 1024


@dataclass(frozen=True)
class Layer:
    """One layer's weights and its paged cache."""

    input_norm: Tensor
    qkv: Tensor
    q_norm: Tensor
    k_norm: Tensor
    out: Tensor
    post_norm: Tensor
    router: Tensor
    gate_up: Tensor
    down: Tensor
    k_cache: Tensor
    v_cache: Tensor


@dataclass(frozen=True)
class Batch:
    """What changes from step to step: the inputs of one captured batch size."""

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    table: Tensor
    context: Tensor
    temperature: Tensor
    top_p: Tensor
    seed: Tensor


def normal(*shape: int, std: float = 0.02, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(*shape, dtype=dtype, device="cuda").normal_(0.0, std)


class Model:
    """Random weights of a shape, and the decode step over them."""

    def __init__(self, shape: Shape, sequences: int) -> None:
        self.shape = shape
        s, blocks = shape, sequences * shape.max_context // shape.block_size
        ones = torch.ones(s.hidden, dtype=torch.bfloat16, device="cuda")
        head_ones = torch.ones(s.head_dim, dtype=torch.bfloat16, device="cuda")
        cache = (blocks, s.block_size, s.kv_heads, s.head_dim)
        self.layers = [
            Layer(
                ones,
                normal((s.q_heads + 2 * s.kv_heads) * s.head_dim, s.hidden),
                head_ones,
                head_ones,
                normal(s.hidden, s.q_heads * s.head_dim),
                ones,
                normal(s.experts, s.hidden),
                normal(s.experts, 2 * s.inner, s.hidden),
                normal(s.experts, s.hidden, s.inner),
                normal(*cache, std=1.0),
                normal(*cache, std=1.0),
            )
            for _ in range(s.layers)
        ]
        self.embedding = normal(s.vocab, s.hidden, std=1.0)
        self.head = normal(s.vocab, s.hidden)
        self.norm = ones
        angle = torch.rand(s.max_context, s.head_dim // 2, device="cuda") * 6.3
        self.cos_sin = torch.cat((angle.cos(), angle.sin()), dim=-1)

    def batch(self, size: int) -> Batch:
        """A batch whose contexts are spread evenly around the shape's."""
        s = self.shape
        spread = torch.linspace(-1 / 3, 1 / 3, size, device="cuda") if size > 1 else torch.zeros(1, device="cuda")
        context = (s.context * (1 + spread)).round().int()
        pages = s.max_context // s.block_size
        table = torch.randperm(size * pages, device="cuda").view(size, pages).int()
        last = (context - 1).long()
        slots = table.gather(1, (last // s.block_size)[:, None])[:, 0].long() * s.block_size + last % s.block_size
        ones = torch.ones(size, device="cuda")
        tokens = torch.randint(s.vocab, (size,), device="cuda")
        seed = torch.arange(size, device="cuda")
        return Batch(tokens, last, slots, table, context, ones * 0, ones, seed)

    def step(
        self, batch: Batch, count: int | None = None, seen: list[Tensor] | None = None, k: ModuleType = device_kernels
    ) -> tuple[Tensor, Tensor]:
        """One decode step through the first ``count`` layers by the functions of ``k``: (tokens, hidden state)."""
        s = self.shape
        residual = self.embedding[batch.tokens]
        normed = k.rms_norm(residual, self.layers[0].input_norm, EPS)
        chosen = self.layers[:count]
        for index, layer in enumerate(chosen):
            qkv = k.linear(normed, layer.qkv)
            mixed = k.rope_decode_attention(
                qkv, layer.q_norm, layer.k_norm, self.cos_sin, batch.positions, layer.k_cache, layer.v_cache,
                batch.slots, batch.table, batch.context, s.head_dim**-0.5, EPS,
            )  # fmt: skip
            out = k.linear(mixed.flatten(1), layer.out)
            normed, residual, logits = k.add_norm_router(out, residual, layer.post_norm, layer.router, EPS)
            weights, ids = k.route_softmax_topk(logits, s.top_k, True)
            if seen is not None:
                seen.append(ids)
            parts = k.moe_parts(normed, ids, layer.gate_up, layer.down, 0)
            following = chosen[index + 1].input_norm if index + 1 < len(chosen) else self.norm
            normed, residual = k.combine_add_rms_norm(parts, weights, ids, residual, following, EPS, 0, s.experts)
        logits = k.linear(normed, self.head)
        return k.sample(logits, batch.temperature, batch.top_p, batch.seed, batch.positions), normed


def capture(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """``work`` warmed up on a side stream and captured."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def replay_ms(graph: torch.cuda.CUDAGraph, replays: int = 15, runs: int = 3) -> float:
    """The median over ``runs`` of the mean time of one replay."""
    graph.replay()
    times = []
    for _ in range(runs):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / replays)
    return float(statistics.median(times))


def eager_ms(work: Callable[[], object], steps: int = 5) -> float:
    work()
    times = []
    for _ in range(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def floor_bytes(shape: Shape, distinct: float, context_tokens: int) -> float:
    """The bytes one decode step must read: dense weights, the touched experts, the cache, lm_head."""
    s = shape
    attention = (s.q_heads + 2 * s.kv_heads) * s.head_dim * s.hidden + s.hidden * s.q_heads * s.head_dim
    expert = 3 * s.inner * s.hidden
    cache = 2 * s.kv_heads * s.head_dim * context_tokens
    return 2 * (s.layers * (attention + s.experts * s.hidden + distinct * expert + cache) + s.vocab * s.hidden)


def profile(graph: torch.cuda.CUDAGraph, replays: int = 3) -> dict[str, tuple[int, float, float]]:
    """Kernel name to (launches a step, microseconds it adds to the step, microseconds it is resident).

    Kernels overlap, so what one adds is the time between the end of the one before it and its own end.
    """
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as recorded:
        for _ in range(replays):
            graph.replay()
        torch.cuda.synchronize()
    spans = sorted((e.time_range.end, e.time_range.start, e.name[:60]) for e in recorded.events())
    added: dict[str, list[tuple[float, float]]] = {}
    for before, (end, start, name) in pairwise(spans):
        added.setdefault(name, []).append((end - max(before[0], start - 20.0), end - start))
    rows = {
        name: (
            round(len(times) / replays),
            statistics.mean(time for time, _ in times),
            statistics.mean(time for _, time in times),
        )
        for name, times in added.items()
    }
    return dict(sorted(rows.items(), key=lambda item: -item[1][0] * item[1][1]))


def error_of_two_layers(model: Model, batch: Batch) -> float:
    """The relative difference from plain torch after two layers, of the token in the middle of the field.

    Of the median token, because a bfloat16 rounding can decide a close vote between two experts.
    """
    got, expected = (model.step(batch, count=2, k=module)[1].double() for module in (device_kernels, reference))
    return float(((got - expected).norm(dim=-1) / expected.norm(dim=-1)).median())


def replays_agree(graph: torch.cuda.CUDAGraph, hidden: Tensor, replays: int = 20) -> bool:
    """Whether replays give the same bits: a kernel that ran ahead of its inputs would not."""
    graph.replay()
    first = hidden.clone()
    agreed = True
    for _ in range(replays):
        graph.replay()
        agreed &= torch.equal(hidden, first)
    return agreed


def measure(model: Model, size: int, rate: float, with_profile: bool) -> dict[str, object]:
    """Inter-token time, floor and breakdown of one batch size."""
    batch = model.batch(size)
    seen: list[Tensor] = []
    model.step(batch, seen=seen)
    distinct = statistics.mean(len(torch.unique(ids)) for ids in seen)
    results: list[Tensor] = []

    def step() -> None:
        results[:] = model.step(batch)

    graph = capture(step)
    row: dict[str, object] = {
        "concurrency": size,
        "itl_ms": replay_ms(graph),
        "floor_ms": floor_bytes(model.shape, distinct, int(batch.context.sum())) / rate / 1e6,
        "distinct_experts": distinct,
        "error": error_of_two_layers(model, batch),
        "replays_agree": replays_agree(graph, results[1]),
    }
    if with_profile:
        row["kernels_us"] = profile(graph)
    if size == 1:
        row["eager_ms"] = eager_ms(lambda: model.step(batch))
    del graph
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--batches", default="1,2,4,8,16,32,64,128")
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--rate", type=float, default=4300.0, help="GB/s, the copy rate that the floor divides by")
    parser.add_argument("--profile", default="1,8,32,128", help="batch sizes to break down by kernel")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    sizes = [int(size) for size in chosen.batches.split(",")]
    torch.manual_seed(0)
    shape = Shape(layers=chosen.layers)
    model = Model(shape, max(sizes))
    rows = [measure(model, size, chosen.rate, str(size) in chosen.profile.split(",")) for size in sizes]
    for row in rows:
        eager = f"  eager {row['eager_ms']:.2f} ms" if "eager_ms" in row else ""
        print(
            f"C={row['concurrency']:<4} {row['itl_ms']:7.3f} ms  floor {row['floor_ms']:7.3f}"
            f"  distinct experts {row['distinct_experts']:6.1f}  error {row['error']:.1e}"
            f"  replays agree {row['replays_agree']}{eager}"
        )
        for name, (launches, added, resident) in list(dict(row.get("kernels_us", {})).items())[:12]:  # type: ignore[call-overload]
            print(f"      {launches:4d} x {added:7.2f} us ({resident:7.2f} resident)  {name}")
    if chosen.out:
        chosen.out.write_text(json.dumps({"shape": asdict(shape), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
