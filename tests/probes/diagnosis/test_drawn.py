"""Deployments drawn at random: turning the knob that a verdict names does what was predicted."""

from __future__ import annotations

import itertools
import random

import msgspec

from probes.diagnosis.verdict import Verdict
from sessions.knobs import Knobs
from tests.probes.diagnosis.conftest import REPORT
from tests.probes.diagnosis.emulation import Setup, run

CLUSTERS = [
    ("8x-rtx-pro-6000", "kimi-k2.6", 8),
    ("4x-h200", "qwen3-30b-a3b", 4),
    ("2x-h200", "qwen3-30b-a3b", 2),
    ("8x-h200", "deepseek-v3", 8),
    ("8x-b200", "kimi-k2.6", 8),
]
DEPLOYMENTS = 60
CLEAR_GAIN, NO_GAIN = 1.3, 0.97


def drawn(seed: int) -> Setup:
    """A pipeline with its load, as operators might have set it."""
    draw = random.Random(seed)
    hardware, model, ranks = draw.choice(CLUSTERS)
    total = draw.choice([1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128])
    parts = draw.choice([1, 1, 1, 2, 3, ranks])
    cuts = [0, *sorted(draw.randrange(total + 1) for _ in range(parts - 1)), total]
    knobs = Knobs(
        async_depth=draw.choice([1, 2, max(1, ranks // 2), ranks, ranks, 2 * ranks]),
        admission=draw.choice(["greedy", "greedy", "capped", "decode-cap", "rebalance"]),
        max_micro_batch=draw.choice([256, 256, 16, 8]),
        cuda_graphs=draw.random() < 0.6,
    )
    return Setup(
        tuple(b - a for a, b in itertools.pairwise(cuts) if b > a),
        knobs,
        hardware=hardware,
        model=model,
        ranks=ranks,
        changes={"hop_us": draw.choice([200.0, 1000.0, 5000.0])} if draw.random() < 0.25 else {},
        split=draw.choice(["balanced", "balanced", "even"]),
        run_ahead=draw.choice([0, 0, 1]),
    )


def test_turning_the_named_knob_does_what_was_predicted() -> None:
    predictions = []
    for seed in range(DEPLOYMENTS):
        setup = drawn(seed)
        measured = run(setup)
        for verdict in measured.diagnosis().verdicts:
            if verdict.knob is None or verdict.gain is None:
                continue
            turned = setup._replace(knobs=msgspec.structs.replace(setup.knobs, **{verdict.knob: verdict.value}))
            predictions.append((seed, verdict, run(turned).tokens_per_s / measured.tokens_per_s))
    missed = [_told(*each) for each in predictions if not each[1].gain.contains(each[2])]  # type: ignore[union-attr]
    harmful = [_told(*each) for each in predictions if each[1].verdict == "holds" and each[2] < NO_GAIN]
    overlooked = [_told(*each) for each in predictions if each[1].verdict != "holds" and each[2] > CLEAR_GAIN]
    kept = len(predictions) - len(missed)
    REPORT.append(
        f"{kept} of {len(predictions)} gains of drawn deployments within their band; missed: {missed or 'none'}"
    )
    assert len(predictions) > DEPLOYMENTS / 2
    assert not harmful and not overlooked
    assert kept >= 0.9 * len(predictions), missed


def _told(seed: int, verdict: Verdict, got: float) -> str:
    return (
        f"{seed}: {verdict.hypothesis} {verdict.verdict}, {verdict.knob}={verdict.value} {verdict.gain}, got {got:.2f}"
    )
