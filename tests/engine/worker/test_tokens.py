"""Greedy tokens in float32 equal transformers' own, whatever the parallelism, the knobs and their changes."""

from __future__ import annotations

import random
import time
from pathlib import Path

import msgspec
import pytest
import torch

from engine.checkpoint.config_json import read_config
from engine.checkpoint.parameters import parameters_of
from engine.checkpoint.safetensors_reader import Checkpoint
from engine.models.loading import load_parameter
from engine.parallel.layout import ep_layout, held_ranges, pp_layout
from engine.worker.model_state import fingerprint
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


@pytest.mark.optin
@pytest.mark.timeout(900)
def test_every_admission_at_every_depth(
    served: Served, family: str, expected: Outputs, requests: list[RequestSpec]
) -> None:
    """All sixteen pairs, where the test above runs four for each layout."""
    if family != "qwen3-moe":
        pytest.skip("once is enough: knobs are the scheduler's")
    for policy in ADMISSIONS:
        for depth in DEPTHS:
            knobs = Knobs(async_depth=depth, admission=policy)
            outputs, _ = served.generate(knobs, requests)
            assert outputs == expected, knobs


def test_preemption_in_a_small_cache(
    served: Served, family: str, expected: Outputs, requests: list[RequestSpec]
) -> None:
    if served.config.pp != 2 or family != "qwen3-moe":
        pytest.skip("once is enough: preemption is the scheduler's")
    knobs = Knobs(async_depth=2, admission="capped")
    outputs, scheduler = served.generate(knobs, requests, kv_blocks=60)
    assert outputs == expected
    assert scheduler.preempted_total > 0


def test_knobs_turned_at_random_moments(
    served: Served, family: str, expected: Outputs, requests: list[RequestSpec]
) -> None:
    if served.config.pp != 2 or family != "qwen3-moe":
        pytest.skip("once is enough: the knobs are the scheduler's")
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
    switch_at = sorted(draw.sample(range(5, 40), 3))
    shorter = [msgspec.structs.replace(spec, max_tokens=32) for spec in requests[:16]]

    def turn(step: int, knobs: Knobs) -> Knobs:
        if not switch_at or step < switch_at[0]:
            return knobs
        switch_at.pop(0)
        other = "ep" if knobs.parallelism == "pp" else "pp"
        return msgspec.structs.replace(knobs, parallelism=other)

    outputs, _ = served.generate(Knobs(async_depth=2, admission="rebalance"), shorter, between=turn)
    assert outputs == {spec.id: expected[spec.id][:32] for spec in shorter}
    assert not switch_at


def test_weights_after_a_switch_are_those_of_a_fresh_load(served: Served) -> None:
    config = read_config(Path(served.config.model))
    checkpoint = Checkpoint(Path(served.config.model))
    for mode in ("ep", "pp", "ep"):
        served.turn(msgspec.structs.replace(served.knobs, parallelism=mode))
        layout = pp_layout(config, served.config.pp) if mode == "pp" else ep_layout(config, served.config.ep)
        held = served.executor.fingerprints()
        for rank, hashes in enumerate(held):
            fresh = {
                p.name: fingerprint(load_parameter(checkpoint, config, p, ranges, torch.float32, torch.device("cpu")))
                for p in parameters_of(config)
                if (ranges := held_ranges(p, layout, rank))
            }
            assert hashes == fresh
    for rank in served.executor.last_switch:
        assert rank.extra_bytes <= rank.layer_bytes


def test_drawn_tokens_do_not_depend_on_batch_or_parallelism(served: Served, requests: list[RequestSpec]) -> None:
    drawn = [
        msgspec.structs.replace(spec, temperature=0.9, top_p=0.8, seed=1000 + number, max_tokens=12)
        for number, spec in enumerate(requests[:6])
    ]
    outputs = []
    for mode, depth in (("pp", 1), ("ep", 2)):
        knobs = Knobs(async_depth=depth, admission="rebalance", parallelism=mode)
        outputs.append(served.generate(knobs, drawn)[0])
    outputs.append(served.generate(served.knobs, drawn[3:4])[0])
    assert outputs[0] == outputs[1]
    assert outputs[2]["r3"] == outputs[0]["r3"]
    other = [msgspec.structs.replace(spec, seed=1) for spec in drawn]
    assert served.generate(served.knobs, other)[0] != outputs[0]


def test_spans_of_every_stage_are_ordered_and_complete(served: Served, requests: list[RequestSpec]) -> None:
    served.turn(Knobs(parallelism="pp"))
    time.sleep(0.2)
    served.executor.collect(0.2)
    served.executor.spans()
    started = time.monotonic_ns()
    _, scheduler = served.generate(Knobs(async_depth=2, admission="capped"), requests[:4])
    frames = served.executor.spans()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and sum(len(f.spans) for f in frames) < scheduler.steps_total * served.config.pp:
        served.executor.collect(0.1)
        frames += served.executor.spans()
    for stage in range(served.config.pp):
        spans = [(frame.t_ns, span) for frame in frames if frame.stage == stage for span in frame.spans]
        assert [span.step for _, span in spans] == list(range(scheduler.steps_total))
        end = started
        for base, span in spans:
            assert span.wait <= span.ready <= span.start <= span.end <= span.sent
            assert base + span.start >= end
            end = base + span.end
        assert sum(span.prefill_tokens for _, span in spans) >= sum(len(r.prompt) for r in requests[:4])
