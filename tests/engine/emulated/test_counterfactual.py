"""Gains predicted from spans of one emulated run, against what the cluster then does with the thing fixed."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import pytest

from engine.config import EngineConfig
from engine.emulated.band import Band
from engine.emulated.cluster import Cluster, cluster_of
from engine.emulated.counterfactual import (
    Measured,
    at_best_depth,
    best_expected,
    combined,
    even_sizes,
    evenly_split,
    gain,
    occupancy,
    p_eff,
    replay,
    shortened,
    with_balanced_stages,
    with_graphs,
    with_links,
    without_host,
)
from engine.emulated.curves import Shape, StageCurve, StageSample, fit_curve, generic_shape, shape_of
from sessions.knobs import Knobs
from sessions.messages import StageFrame
from tests.engine.emulated.closed_loop import Outcome, closed_loop

GREEDY_16 = Knobs(async_depth=8, admission="greedy", max_micro_batch=16, cuda_graphs=True)


def kimi() -> Cluster:
    return cluster_of(EngineConfig(model="kimi-k2.6", emulate="8x-rtx-pro-6000", pp=8))


def measured(
    outcome: Outcome, cluster: Cluster, cohorts: tuple[int, ...], graphs: bool, known: bool = True
) -> Measured:
    roofline = cluster.roofline("pp")
    samples: dict[int, list[StageSample]] = defaultdict(list)
    for frame in outcome.frames:
        samples[frame.stage] += samples_of(frame)
    curves = []
    for stage, layers in enumerate(roofline.layers):
        shape = generic_shape(384, 8, layers, stage == roofline.stages - 1)
        if known:
            shape = shape_of(cluster.model, *roofline.bounds(stage))
        curves.append(fit_curve(samples[stage], shape, layers))
    hop = roofline.hop_s(0, 1, max(cohorts))
    host = cluster.hardware.host_us * 1e-6
    return Measured(
        curves=tuple(curves),
        cohorts=cohorts,
        hop_s=(hop,) * (roofline.stages - 1),
        feedback_s=hop + host,
        host_s=host,
        graphs=graphs,
    )


def samples_of(frame: StageFrame) -> list[StageSample]:
    return [
        StageSample(decode=s.decode, tau_s=(s.end - s.start) / 1e9, launch_s=s.launch_ns / 1e9, graph=s.graph)
        for s in frame.spans
        if s.decode and not s.prefill_tokens
    ]


def test_the_replay_gives_back_what_was_measured() -> None:
    cluster = kimi()
    run = closed_loop(GREEDY_16, 32)
    m = measured(run, cluster, (16, 16), True)
    assert replay(m).mid == pytest.approx(run.tokens_per_s, rel=0.01)
    assert replay(m).low == pytest.approx(replay(m).high)
    assert len(occupancy(m)) == 8


@pytest.mark.parametrize("known_model", [True, False])
def test_dissolving_the_herd_gains_what_was_predicted(known_model: bool) -> None:
    cluster = kimi()
    before = closed_loop(GREEDY_16, 32)
    after = closed_loop(msgspec.structs.replace(GREEDY_16, admission="capped"), 32)
    m = measured(before, cluster, (16, 16), True, known_model)
    predicted = gain(m, evenly_split(m, 8))
    truth = after.tokens_per_s / before.tokens_per_s
    assert predicted.contains(truth)
    assert predicted.mid == pytest.approx(truth, rel=0.12)
    assert best_expected(m).mid >= 0.99 * replay(evenly_split(m, 8)).mid


def test_graphs_alone_add_about_nothing_to_the_memory_bound_herd() -> None:
    cluster = kimi()
    eager = Knobs(async_depth=1, admission="greedy", cuda_graphs=False)
    m = measured(closed_loop(eager, 8), cluster, (8,), False)
    assert gain(m, with_graphs(m)).high < 1.05
    assert gain(m, with_links(m, (0.0,) * 7)).high < 1.05
    assert gain(m, evenly_split(m, 8)).mid > 1.5


def test_graphs_gain_for_a_launch_bound_stage_lies_in_the_band() -> None:
    cluster = kimi()
    eager = Knobs(async_depth=1, admission="greedy", cuda_graphs=False)
    before, after = closed_loop(eager, 1), closed_loop(msgspec.structs.replace(eager, cuda_graphs=True), 1)
    m = measured(before, cluster, (1,), False)
    assert gain(m, with_graphs(m)).contains(after.tokens_per_s / before.tokens_per_s)
    busy = [StageSample(decode=1, tau_s=5e-3, launch_s=5e-3, busy_s=3e-3)]
    assert fit_curve(busy, shape_of(cluster.model, 7, 14), 7).at(1, graphs=True) == Band(3e-3, 3e-3, 3e-3)


def test_balancing_stages_gains_what_a_balanced_split_does() -> None:
    knobs = Knobs(async_depth=9, admission="capped", cuda_graphs=True)
    even = kimi()
    balanced = msgspec.structs.replace(even, split="balanced")
    before, after = (closed_loop(knobs, 36, cluster=c) for c in (even, balanced))
    m = measured(before, even, even_sizes(36, 9), True)
    predicted = gain(m, with_balanced_stages(m)).mid
    assert predicted >= after.tokens_per_s / before.tokens_per_s > 1.02
    assert predicted == pytest.approx(after.tokens_per_s / before.tokens_per_s, rel=0.08)


def flat(taus: list[float], cohorts: tuple[int, ...], **extra: object) -> Measured:
    shape = Shape(experts=0, top_k=0, rest=Band(1.0, 1.0, 1.0))
    curves = tuple(fit_curve([StageSample(decode=1, tau_s=t, graph=True)], shape, 1) for t in taus)
    return msgspec.structs.replace(Measured(curves=curves, cohorts=cohorts), **extra)


def test_each_fix_changes_only_its_own_thing() -> None:
    m = flat([1.0] * 4, (1,), hop_s=(0.5,) * 3, feedback_s=1.5, host_s=1.0)
    assert replay(m).mid == pytest.approx(1 / 7.0)
    assert replay(with_links(m, (0.0,) * 3)).mid == pytest.approx(1 / 5.5)
    assert replay(without_host(m)).mid == pytest.approx(1 / 6.0)
    assert replay(shortened(m, [0.5] * 4)).mid == pytest.approx(1 / 5.0)
    assert replay(combined(m, [without_host(m), shortened(m, [0.5] * 4)])).mid == pytest.approx(1 / 4.0)
    assert gain(m, m) == Band(1.0, 1.0, 1.0)


def test_dense_flat_stages_gain_nothing_by_splitting_but_depth_fills_bubbles() -> None:
    """A dense model's stage takes as long for one request as for all: four micro-batches fill the pipeline, and each
    carries a quarter of the requests."""
    m = flat([1.0] * 4, (8,))
    assert gain(m, evenly_split(m, 4)).mid == pytest.approx(1.0)
    deeper = evenly_split(m, 8)
    assert gain(m, deeper).mid == pytest.approx(0.5)
    assert replay(at_best_depth(m)).mid == pytest.approx(replay(m).mid)
    assert p_eff(m) == pytest.approx(4.0)


def test_sizes_and_curves() -> None:
    assert even_sizes(10, 4) == (3, 3, 2, 2)
    assert even_sizes(2, 5) == (1, 1)
    shape = generic_shape(64, 4, 8, False)
    curve = fit_curve([StageSample(decode=b, tau_s=t, graph=True) for b, t in ((2, 2.0), (6, 4.0), (6, 4.2))], shape, 8)
    assert isinstance(curve, StageCurve)
    assert curve.at(2).mid == 2.0 and curve.at(6).mid == pytest.approx(4.1)
    assert 2.0 < curve.at(4).mid < 4.1
    assert curve.at(1).low <= curve.at(1).mid < 2.0 <= curve.at(1).high * 1.5
    assert curve.at(64).mid > 4.1
    with pytest.raises(ValueError, match="no decode"):
        fit_curve([], shape, 1)
