"""Greedy tokens in float32 equal transformers' own, whatever the parallelism, the knobs and their changes."""

from __future__ import annotations

import random

import msgspec
import pytest

from sessions.knobs import ADMISSIONS, Knobs
from sessions.messages import RequestSpec
from tests.engine.worker.served import Served

LAYOUTS = [(1, 2), (2, 4), (4, 2)]
DEPTHS = (1, 2, 4, 8)
Outputs = dict[str, list[int]]

pytestmark = pytest.mark.parametrize(
    "served", LAYOUTS, indirect=True, ids=lambda layout: f"pp{layout[0]}-ep{layout[1]}"
)


def settings(served: Served, family: str) -> list[Knobs]:
    """Every admission and every depth once, paired otherwise for each layout; one pair for the second family."""
    shift = served.config.pp.bit_length()
    pairs = [(policy, DEPTHS[(place + shift) % 4]) for place, policy in enumerate(ADMISSIONS)]
    return [Knobs(async_depth=depth, admission=policy) for policy, depth in pairs[: 4 if family == "qwen3-moe" else 1]]


def test_every_admission_and_depth(served: Served, family: str, expected: Outputs, requests: list[RequestSpec]) -> None:
    for knobs in settings(served, family):
        outputs, _ = served.generate(knobs, requests)
        assert outputs == expected, knobs


def test_preemption_in_a_small_cache(served: Served, expected: Outputs, requests: list[RequestSpec]) -> None:
    if served.config.pp != 2:
        pytest.skip("once is enough: preemption is the scheduler's")
    knobs = Knobs(async_depth=2, admission="capped")
    outputs, scheduler = served.generate(knobs, requests, kv_blocks=60)
    assert outputs == expected
    assert scheduler.preempted_total > 0


def test_knobs_turned_at_random_moments(served: Served, expected: Outputs, requests: list[RequestSpec]) -> None:
    draw = random.Random(7)

    def turn(step: int, knobs: Knobs) -> Knobs:
        if draw.random() > 0.1:
            return knobs
        return msgspec.structs.replace(
            knobs,
            async_depth=draw.choice(DEPTHS),
            admission=draw.choice(ADMISSIONS),
            max_micro_batch=draw.choice((1, 3, 8, 256)),
        )

    outputs, _ = served.generate(Knobs(async_depth=4), requests, between=turn, kv_blocks=120)
    assert outputs == expected


def test_parallelism_switched_at_random_moments(served: Served, expected: Outputs, requests: list[RequestSpec]) -> None:
    draw = random.Random(11)
    switch_at = sorted(draw.sample(range(5, 60), 3))

    def turn(step: int, knobs: Knobs) -> Knobs:
        if not switch_at or step < switch_at[0]:
            return knobs
        switch_at.pop(0)
        other = "ep" if knobs.parallelism == "pp" else "pp"
        return msgspec.structs.replace(knobs, parallelism=other)

    outputs, _ = served.generate(Knobs(async_depth=2, admission="rebalance"), requests, between=turn)
    assert outputs == expected
    assert not switch_at
