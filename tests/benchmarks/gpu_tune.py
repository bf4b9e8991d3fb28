"""Sweep the tile shapes of the decode products on the GPU, each as the kernels of many layers replayed from one graph.

    python -m tests.benchmarks.gpu_tune [--batches 1,8,32,128] [--out result.json]

The winners go into engine/kernels/fused/config.py by hand, with the date and the card.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from engine.kernels.fused.config import DecodeTiles, ExpertTiles, LinearTiles, decode_tiles
from engine.kernels.fused.decode import launch_decode
from engine.kernels.fused.linear import skinny_linear
from engine.kernels.fused.moe import DIRECT_PAIRS, down, gate_up
from engine.kernels.fused.moe_blocks import Blocks, sort_into_blocks
from tests.benchmarks.gpu_decode import capture, normal, replay_ms

HIDDEN, INNER, EXPERTS, TOP_K, Q_HEADS, KV_HEADS = 2048, 768, 128, 8, 32, 4
SHARED_MEMORY = 227 * 1024

# (cols, step, warps, stages)
GATE_UP = [
    (16, 256, 4, 4), (32, 64, 4, 6), (32, 128, 4, 3), (32, 128, 4, 4), (32, 128, 4, 6), (32, 256, 4, 3),
    (32, 128, 2, 5), (64, 64, 4, 4), (64, 64, 4, 6), (64, 128, 4, 3), (64, 128, 4, 4), (64, 128, 8, 3), (128, 64, 4, 4),
    (128, 64, 8, 4),
]  # fmt: skip
DOWN = [
    (32, 128, 4, 4), (32, 128, 4, 6), (32, 256, 4, 3), (64, 64, 4, 6), (64, 128, 4, 3), (64, 128, 4, 4),
    (64, 128, 4, 6), (64, 256, 4, 3), (128, 64, 4, 4), (128, 64, 4, 6), (128, 128, 4, 3), (128, 128, 4, 4),
    (128, 128, 8, 3),
]  # fmt: skip
LINEAR = [
    (16, 256, 4, 4), (16, 512, 4, 4), (32, 128, 2, 6), (32, 128, 4, 6), (32, 256, 4, 4), (64, 128, 4, 4),
    (64, 64, 4, 6), (64, 128, 8, 4), (128, 64, 8, 4),
]  # fmt: skip
LINEARS = {"qkv": (5120, 2048), "out": (2048, 4096), "head": (151936, 2048)}


def expert_variants(batch: int, shapes: list[tuple[int, int, int, int]], copies: int) -> Iterator[ExpertTiles]:
    """The tiles of a sweep that fit in shared memory; ``copies`` weight tiles are held a stage."""
    for rows in (8, 16) if batch <= 64 else (16, 32):
        for cols, step, warps, stages in shapes:
            if stages * step * 2 * (copies * cols + rows) <= SHARED_MEMORY:
                yield ExpertTiles(rows, cols, step, warps, stages, swap=True)


def linear_variants(batch: int) -> Iterator[LinearTiles]:
    for rows, (cols, step, warps, stages) in product((8, 16) if batch <= 8 else (batch,), LINEAR):
        if stages * step * 2 * (cols + rows) <= SHARED_MEMORY:
            yield LinearTiles(rows, cols, step, warps, stages)


def random_blocks(batch: int, rows: int) -> tuple[Tensor, Blocks]:
    """A uniform router's choice for one layer, and its blocks."""
    ids = torch.rand(batch, EXPERTS, device="cuda").topk(TOP_K).indices.int()
    pairs = batch * TOP_K
    blocks = Blocks(ids, ids, pairs, direct=True) if pairs <= DIRECT_PAIRS else sort_into_blocks(ids, rows, 0, EXPERTS)
    return ids, blocks


def timed(work: Callable[[int], object], layers: int) -> float:
    """Microseconds a layer."""
    return replay_ms(capture(lambda: [work(layer) for layer in range(layers)]), replays=4) * 1e3 / layers


def decode_variants(batch: int) -> Iterator[DecodeTiles]:
    usual = decode_tiles(batch * KV_HEADS).splits
    for splits in sorted({usual, min(16, usual * 2)}):
        for span, warps, stages in [
            (64, 4, 1),
            (64, 4, 2),
            (128, 4, 1),
            (128, 8, 1),
            (128, 8, 2),
            (256, 8, 1),
            (256, 8, 2),
        ]:
            yield DecodeTiles(splits, span, warps, stages)


def sweep_attention(batch: int, layers: int, rate: float) -> object:
    """The fused decode attention at 192 tokens of context, with the norms and the new token."""
    pages = 64
    caches = [
        (normal(batch * pages, 16, KV_HEADS, 128), normal(batch * pages, 16, KV_HEADS, 128)) for _ in range(layers)
    ]
    qkv = normal(batch, (Q_HEADS + 2 * KV_HEADS) * 128, std=1.0)
    weight = normal(128, std=1.0)
    table = torch.randperm(batch * pages, device="cuda").view(batch, pages).int()
    context = torch.full((batch,), 192, dtype=torch.int32, device="cuda")
    slots = table[:, 11].long() * 16 + 15
    cos_sin = torch.rand(1024, 128, device="cuda")
    rotation = (slots, weight, weight, cos_sin, context - 1, 1e-6)

    def run(tiles: DecodeTiles, layer: int) -> Tensor:
        return launch_decode(qkv, rotation, caches[layer], table, context, 0.1, tiles)

    results = {str(tiles): timed(partial(run, tiles), layers) for tiles in decode_variants(batch)}
    return report("attention", batch, batch * 192 * KV_HEADS * 128 * 4 / rate / 1e3, results)


def report(kind: str, batch: int, floor_us: float, results: dict[str, float]) -> dict[str, object]:
    ordered = sorted(results.items(), key=lambda item: item[1])
    print(f"{kind} C={batch}: floor {floor_us:.1f} us")
    for name, microseconds in ordered[:5]:
        print(f"    {microseconds:8.2f}  {name}")
    return {"kind": kind, "batch": batch, "floor_us": floor_us, "results": dict(ordered)}


def sweep_experts(batch: int, layers: int, rate: float, weights: tuple[list[Tensor], list[Tensor]]) -> list[object]:
    pairs = batch * TOP_K
    x = normal(batch, HIDDEN, std=1.0)
    hidden = normal(pairs, INNER, std=1.0)
    first: dict[str, float] = {}
    second: dict[str, float] = {}
    routed = {rows: [random_blocks(batch, rows) for _ in range(layers)] for rows in (8, 16, 32)}
    distinct = sum(len(torch.unique(ids)) for ids, _ in routed[16]) / layers

    def run_first(tiles: ExpertTiles, layer: int) -> Tensor:
        return gate_up(x, weights[0][layer], routed[tiles.rows][layer][1], pairs, 0, tiles)

    def run_second(tiles: ExpertTiles, layer: int) -> Tensor:
        return down(hidden, weights[1][layer], routed[tiles.rows][layer][1], 0, tiles)

    for tiles in expert_variants(batch, GATE_UP, 2):
        first[str(tiles)] = timed(partial(run_first, tiles), layers)
    for tiles in expert_variants(batch, DOWN, 1):
        second[str(tiles)] = timed(partial(run_second, tiles), layers)
    size = distinct * INNER * HIDDEN * 2 / rate / 1e3
    return [report("gate_up", batch, 2 * size, first), report("down", batch, size, second)]


def sweep_linear(name: str, batch: int, layers: int, rate: float) -> object:
    width, depth = LINEARS[name]
    repeats = layers if name != "head" else 4
    weights = [normal(width, depth) for _ in range(repeats)]
    x = normal(batch, depth, std=1.0)

    def run(tiles: LinearTiles, layer: int) -> Tensor:
        return skinny_linear(x, weights[layer], tiles)

    results = {"library": timed(lambda layer: functional.linear(x, weights[layer]), repeats)}
    for tiles in linear_variants(batch):
        results[str(tiles)] = timed(partial(run, tiles), repeats)
    return report(name, batch, width * depth * 2 / rate / 1e3, results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--batches", default="1,8,32,128")
    parser.add_argument("--kinds", default="experts,linear,attention")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--rate", type=float, default=4300.0, help="GB/s that the floor divides by")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    layers: int = chosen.layers
    kinds = chosen.kinds.split(",")
    weights = (
        [normal(EXPERTS, 2 * INNER, HIDDEN) for _ in range(layers if "experts" in kinds else 0)],
        [normal(EXPERTS, HIDDEN, INNER) for _ in range(layers if "experts" in kinds else 0)],
    )
    reports: list[object] = []
    for batch in map(int, chosen.batches.split(",")):
        if "experts" in kinds:
            reports += sweep_experts(batch, layers, chosen.rate, weights)
        if "linear" in kinds:
            reports += [sweep_linear(name, batch, layers, chosen.rate) for name in LINEARS]
        if "attention" in kinds:
            reports.append(sweep_attention(batch, layers, chosen.rate))
        if chosen.out:
            chosen.out.write_text(json.dumps(reports, indent=1))


if __name__ == "__main__":
    main()
