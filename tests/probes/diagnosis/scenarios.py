"""Labelled deployments: what is wrong with each, and the same with its first fault mended."""

from __future__ import annotations

from typing import NamedTuple

from probes.diagnosis.verdict import Hypothesis
from sessions.knobs import Knobs
from tests.probes.diagnosis.emulation import Setup


class Scenario(NamedTuple):
    """`faults`: the hypotheses that must hold, and no others. `mended`: by fault, the setup without that one."""

    name: str
    setup: Setup
    faults: frozenset[Hypothesis] = frozenset()
    mended: dict[Hypothesis, Setup] = {}


def _knobs(depth: int, admission: str = "capped", most: int = 256, graphs: bool = True, mode: str = "pp") -> Knobs:
    return Knobs(async_depth=depth, admission=admission, max_micro_batch=most, cuda_graphs=graphs, parallelism=mode)  # type: ignore[arg-type]


def _qwen(bursts: tuple[int, ...], knobs: Knobs, ranks: int = 4, **changes: object) -> Setup:
    return Setup(bursts, knobs, hardware=f"{ranks}x-h200", model="qwen3-30b-a3b", ranks=ranks, **changes)  # type: ignore[arg-type]


def _one(name: str, fault: Hypothesis, setup: Setup, mended: Setup) -> Scenario:
    return Scenario(name, setup, frozenset((fault,)), {fault: mended})


EVEN = _knobs(8)
LAYERS_UNEVEN = (6, 6, 6, 6, 6, 6, 6, 19)

ALONE = [
    _one("herd of 8 on 8 stages", "herd", Setup((8,), _knobs(8, "greedy")), Setup((8,), EVEN)),
    _one("herd of 32 on 8 stages", "herd", Setup((32,), _knobs(8, "greedy")), Setup((32,), EVEN)),
    _one("two waves of 16 in 8 slots", "herd", Setup((32,), _knobs(8, "greedy", 16)), Setup((32,), EVEN)),
    _one("four waves of 8 in 8 slots", "herd", Setup((32,), _knobs(8, "greedy", 8)), Setup((32,), EVEN)),
    _one(
        "herd of 8, graphs off but compute longer than launching",
        "herd",
        Setup((8,), _knobs(8, "greedy", graphs=False)),
        Setup((8,), _knobs(8, graphs=False)),
    ),
    _one("herd of 16 on 2 H200", "herd", _qwen((16,), _knobs(2, "greedy"), 2), _qwen((16,), _knobs(2), 2)),
    _one("herd of 64 on 4 H200", "herd", _qwen((64,), _knobs(4, "greedy")), _qwen((64,), _knobs(4))),
    _one(
        "graphs off, even split",
        "launch_overhead",
        Setup((8,), _knobs(8, graphs=False)),
        Setup((8,), EVEN),
    ),
    _one("graphs off, one request", "launch_overhead", Setup((1,), _knobs(8, graphs=False)), Setup((1,), EVEN)),
    _one(
        "graphs off on H200",
        "launch_overhead",
        _qwen((16,), _knobs(4, graphs=False)),
        _qwen((16,), _knobs(4)),
    ),
    _one(
        "graphs off, expert parallel",
        "launch_overhead",
        _qwen((16,), _knobs(1, graphs=False, mode="ep")),
        _qwen((16,), _knobs(1, mode="ep")),
    ),
    _one(
        "graphs off, 2 requests that wander over 16 slots",
        "launch_overhead",
        Setup((2,), _knobs(16, "rebalance", graphs=False), hardware="8x-b200"),
        Setup((2,), _knobs(16, "rebalance"), hardware="8x-b200"),
    ),
    _one("2 slots on 8 stages", "shallow_depth", Setup((32,), _knobs(2)), Setup((32,), EVEN)),
    _one("serial: 1 slot on 8 stages", "shallow_depth", Setup((16,), _knobs(1)), Setup((16,), EVEN)),
    _one("4 slots on 8 stages", "shallow_depth", Setup((32,), _knobs(4)), Setup((32,), EVEN)),
    _one(
        "2 slots full, others wait",
        "shallow_depth",
        _qwen((64,), _knobs(2, most=16)),
        _qwen((64,), _knobs(4, most=16)),
    ),
    _one(
        "1 slot full, others wait, greedy",
        "shallow_depth",
        Setup((2, 28, 5, 9, 11, 6, 9, 26), _knobs(1, "greedy", 16)),
        Setup((96,), _knobs(8, "greedy", 16)),
    ),
    _one("1 slot on 4 H200", "shallow_depth", _qwen((32,), _knobs(1)), _qwen((32,), _knobs(4))),
    _one(
        "one slot carries 14 of 32",
        "uneven_split",
        Setup((14, 6, 6, 6), _knobs(4, "greedy"), ranks=4),
        Setup((32,), _knobs(4), ranks=4),
    ),
    _one(
        "one of 8 slots carries 11 of 32",
        "uneven_split",
        Setup((11, 3, 3, 3, 3, 3, 3, 3), _knobs(8, "greedy")),
        Setup((32,), EVEN),
    ),
    _one(
        "last stage has three times the layers",
        "stage_imbalance",
        Setup((16,), EVEN, split=LAYERS_UNEVEN),
        Setup((16,), EVEN),
    ),
    _one(
        "the head's weight on the last stage",
        "stage_imbalance",
        Setup((8,), EVEN, split="even"),
        Setup((8,), EVEN),
    ),
    _one(
        "first stage has twice the layers on H200",
        "stage_imbalance",
        _qwen((32,), _knobs(4), split=(20, 10, 9, 9)),
        _qwen((32,), _knobs(4)),
    ),
    _one(
        "busy experts on one rank",
        "expert_imbalance",
        Setup((16,), _knobs(1, mode="ep"), skew=1.0),
        Setup((16,), _knobs(1, mode="ep"), skew=1.0, even_experts=True),
    ),
    _one(
        "busy experts on one H200",
        "expert_imbalance",
        _qwen((32,), _knobs(1, mode="ep"), skew=1.2),
        _qwen((32,), _knobs(1, mode="ep"), skew=1.2, even_experts=True),
    ),
    _one(
        "5 ms a hop",
        "interconnect",
        Setup((8,), EVEN, changes={"hop_us": 5000.0}),
        Setup((8,), EVEN, changes={"hop_us": 0.0}),
    ),
    _one(
        "a slow link: 2 MB/s",
        "interconnect",
        Setup((8,), EVEN, changes={"link_bytes_per_s": 4e6}),
        Setup((8,), EVEN, changes={"hop_us": 0.0}),
    ),
    _one(
        "0.4 ms an all-reduce",
        "interconnect",
        Setup((8,), _knobs(1, mode="ep"), changes={"allreduce_us": 400.0}),
        Setup((8,), _knobs(1, mode="ep"), changes={"allreduce_us": 0.0, "allreduce_step_us": 0.0}),
    ),
    _one(
        "20 ms of host work a step",
        "host",
        Setup((8,), EVEN, changes={"host_us": 20000.0}),
        Setup((8,), EVEN, changes={"host_us": 0.0}),
    ),
    _one(
        "5 ms of host work a step on H200",
        "host",
        _qwen((4,), _knobs(4), changes={"host_us": 5000.0}),
        _qwen((4,), _knobs(4), changes={"host_us": 0.0}),
    ),
]

PAIRS = [
    Scenario(
        "herd, graphs off, launch-bound",
        _qwen((8,), _knobs(4, "greedy", graphs=False)),
        frozenset(("herd", "launch_overhead")),
        {"launch_overhead": _qwen((8,), _knobs(4, "greedy"))},
    ),
    Scenario(
        "herd and a heavy last stage",
        Setup((32,), _knobs(8, "greedy", 16), split=LAYERS_UNEVEN),
        frozenset(("herd", "stage_imbalance")),
        {"herd": Setup((32,), EVEN, split=LAYERS_UNEVEN), "stage_imbalance": Setup((32,), _knobs(8, "greedy", 16))},
    ),
    Scenario(
        "herd and slow links",
        Setup((8,), _knobs(8, "greedy"), changes={"hop_us": 5000.0}),
        frozenset(("herd", "interconnect")),
        {"herd": Setup((8,), EVEN, changes={"hop_us": 5000.0})},
    ),
    Scenario(
        "few slots and graphs off",
        _qwen((16,), _knobs(1, graphs=False)),
        frozenset(("shallow_depth", "launch_overhead")),
        {"launch_overhead": _qwen((16,), _knobs(1)), "shallow_depth": _qwen((16,), _knobs(4, graphs=False))},
    ),
    Scenario(
        "few slots and a heavy last stage",
        Setup((32,), _knobs(2), split=LAYERS_UNEVEN),
        frozenset(("shallow_depth", "stage_imbalance")),
        {"stage_imbalance": Setup((32,), _knobs(2))},
    ),
    Scenario(
        "herd and a slow host",
        Setup((8,), _knobs(8, "greedy"), changes={"host_us": 40000.0}),
        frozenset(("herd", "host")),
        {"herd": Setup((8,), EVEN, changes={"host_us": 40000.0}), "host": Setup((8,), _knobs(8, "greedy"))},
    ),
    Scenario(
        "busy experts and slow all-reduces",
        Setup((16,), _knobs(1, mode="ep"), skew=1.0, changes={"allreduce_us": 500.0}),
        frozenset(("expert_imbalance", "interconnect")),
    ),
]

HEALTHY = [
    Scenario("8 requests, 8 stages", Setup((8,), EVEN)),
    Scenario("32 requests, 8 stages", Setup((32,), EVEN)),
    Scenario("64 requests, 10 slots, 8 stages", Setup((64,), _knobs(10))),
    Scenario("1 request, 8 stages", Setup((1,), _knobs(8, "greedy"))),
    Scenario("4 requests, 8 stages", Setup((4,), _knobs(8))),
    Scenario("30 requests that do not divide", Setup((30,), EVEN)),
    Scenario("rebalanced on 4 H200", _qwen((32,), _knobs(4, "rebalance"))),
    Scenario("decodes capped on 2 H200", _qwen((16,), _knobs(2, "decode-cap"), 2)),
    Scenario("expert parallel on 8 GPUs", Setup((16,), _knobs(1, mode="ep"))),
    Scenario("expert parallel on 2 H200", _qwen((32,), _knobs(1, mode="ep"), 2)),
    Scenario("2 requests that wander over 16 slots", Setup((2,), _knobs(16, "rebalance"))),
    Scenario("one GPU", _qwen((16,), _knobs(1, "greedy"), 1)),
]

SCENARIOS = ALONE + PAIRS + HEALTHY
