"""What the launches of one eager decode layer cost the host, on any machine: `python -m tests.benchmarks.launch_cost`.

Kernels are compiled for Hopper and launched through Triton as ever, but the launch itself is left out, so what is
timed is Triton's and our own Python. Microseconds, the least of several rounds; one stream of Qwen3-30B-A3B's shape.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

ROUNDS, CALLS = 15, 200
MODULES = ("decode", "linear", "router", "moe", "moe_blocks", "norm", "routing", "paging")


class NoUtils:
    """Loads nothing."""

    def load_binary(self, *_: object) -> tuple[int, ...]:
        return 1, 2, 100, 0, 1024

    def get_device_properties(self, _: int) -> dict[str, int]:
        return {"max_shared_mem": 232448, "multiprocessor_count": 132, "warpSize": 32, "max_num_regs": 65536}


class NoLauncher:
    """Launches nothing."""

    def __init__(self, *_: object) -> None: ...

    def __call__(self, *_: object) -> None: ...


class NoDriver:
    """A Hopper GPU that takes every launch and does nothing."""

    utils = NoUtils()
    launcher_cls = NoLauncher

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _: int) -> int:
        return 0


def least_us(call: Callable[[], object]) -> float:
    """Microseconds of one call."""
    call()
    rounds = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter() - begun) / CALLS * 1e6)
    return min(rounds)


def main() -> None:
    """Print each call and their sum."""
    driver.set_active(NoDriver())
    for name in MODULES:
        module = import_module(f"engine.kernels.fused.{name}")
        setattr(module, "launch_options", lambda x: {"PDL": True, "launch_pdl": True})  # noqa: B010
    from engine.kernels import fused

    hidden, inner, experts, k, pages = 2048, 768, 128, 8, 64

    def weight(*shape: int) -> torch.Tensor:
        return torch.zeros(*shape, dtype=torch.bfloat16)

    x, norm, head_norm = weight(1, hidden), weight(hidden), weight(128)
    qkv, out, router = weight(5120, hidden), weight(hidden, 4096), weight(experts, hidden)
    caches = weight(pages, 16, 4, 128), weight(pages, 16, 4, 128)
    one, table = torch.ones(1, dtype=torch.int32), torch.zeros(1, pages, dtype=torch.int32)
    gate_up, down = weight(experts, 2 * inner, hidden), weight(experts, hidden, inner)
    ids, shares = torch.zeros(1, k, dtype=torch.int32), torch.zeros(1, k)
    rotation = (head_norm, head_norm, torch.zeros(1024, 128), one, *caches, one, table, one, 0.1, 1e-6)
    calls: dict[str, Callable[[], object]] = {
        "qkv": lambda: fused.linear(x, qkv),
        "rotate, attend, merge": lambda: fused.rope_decode_attention(weight(1, 5120), *rotation),
        "out": lambda: fused.linear(weight(1, 4096), out),
        "add, norm, router": lambda: fused.add_norm_router(x, x, norm, router, 1e-6),
        "choose experts": lambda: fused.route_softmax_topk(torch.zeros(1, experts), k, True),
        "gate-and-up, down": lambda: fused.moe_parts(x, ids, gate_up, down, 0),
        "combine, add, norm": lambda: fused.combine_add_rms_norm(
            weight(1, k, hidden), shares, ids, x, norm, 1e-6, 0, experts
        ),
    }
    took = {name: least_us(call) for name, call in calls.items()}
    for name, microseconds in took.items():
        print(f"{microseconds:8.1f}  {name}")
    print(f"{sum(took.values()):8.1f}  the layer's nine launches")


if __name__ == "__main__":
    main()
