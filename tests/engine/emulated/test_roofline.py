from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import ConfigError
from engine.emulated.hardware import load_hardware
from engine.emulated.layers import balanced_split, even_split
from engine.emulated.model_profile import load_model
from engine.emulated.roofline import Roofline, Work, decode_work

KIMI = load_model("kimi-k2.6")
RTX8 = load_hardware("8x-rtx-pro-6000")


def test_splits_cover_the_layers() -> None:
    assert even_split(61, 8) == (7, 7, 8, 8, 8, 8, 8, 7)
    assert even_split(48, 2) == (24, 24)
    assert even_split(5, 1) == (5,)
    with pytest.raises(ConfigError, match="stages"):
        even_split(4, 5)


@given(costs=st.lists(st.floats(0.1, 5.0), min_size=2, max_size=8), head=st.floats(0.0, 5.0), stages=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_the_balanced_split_is_the_best_there_is(costs: list[float], head: float, stages: int) -> None:
    stages = min(stages, len(costs))

    def dearest(counts: tuple[int, ...]) -> float:
        starts = [sum(counts[:i]) for i in range(len(counts))]
        sums = [sum(costs[s : s + n]) for s, n in zip(starts, counts, strict=True)]
        sums[-1] += head
        return max(sums)

    found = balanced_split(costs, head, stages)
    assert sum(found) == len(costs) and min(found) >= 1
    cuts = itertools.combinations(range(1, len(costs)), stages - 1)
    best = min(dearest(tuple(b - a for a, b in itertools.pairwise((0, *c, len(costs))))) for c in cuts)
    assert dearest(found) == pytest.approx(best)


def test_the_last_stage_of_kimi_is_dearer_by_the_head() -> None:
    """1.36 times the mean at b = 1 and 1.15 at b = 4, as published for this model and split."""
    for size, ratio in ((1, 1.36), (4, 1.15)):
        taus = [t.stage for t in Roofline(RTX8, KIMI, "pp", 8).stage_times(decode_work(size), True)]
        assert taus[-1] / (sum(taus) / 8) == pytest.approx(ratio, rel=0.03)


def test_memory_bound_stages_grow_with_distinct_experts_and_eager_ones_are_flat() -> None:
    roofline = Roofline(RTX8, KIMI, "pp", 8)
    eager = [roofline.stage_times(decode_work(b), False)[2].stage for b in (1, 2, 8, 64)]
    replayed = [roofline.stage_times(decode_work(b), True)[2].stage for b in (1, 2, 8, 64)]
    assert eager[0] == eager[1]
    assert replayed == sorted(replayed) and replayed[0] < replayed[1]
    assert eager[3] == pytest.approx(replayed[3])
    assert all(e >= r for e, r in zip(eager, replayed, strict=True))


def test_prefill_is_never_replayed_and_nears_the_compute_roof() -> None:
    roofline = Roofline(load_hardware("2x-h200"), load_model("qwen3-30b-a3b"), "pp", 2)
    small, large = (roofline.stage_times(Work(0, n, n, n * n // 2, 1), True)[0] for n in (16, 8192))
    assert not small.replayed and not large.replayed
    assert large.compute_share == 1.0 > small.compute_share


def test_only_sampling_reads_the_head() -> None:
    roofline = Roofline(RTX8, KIMI, "pp", 8)
    silent = roofline.stage_times(Work(0, 8, 8, 36, 0), True)
    sampling = roofline.stage_times(Work(0, 8, 8, 36, 1), True)
    assert [a.gpu == b.gpu for a, b in zip(silent, sampling, strict=True)] == [True] * 7 + [False]


def test_expert_parallel_waits_for_the_fullest_rank() -> None:
    skewed = msgspec.structs.replace(KIMI, routing_skew=1.0)
    even, uneven = (Roofline(RTX8, m, "ep", 8).stage_times(decode_work(8), True)[0] for m in (KIMI, skewed))
    tensor = Roofline(RTX8, KIMI, "tp", 8).stage_times(decode_work(8), True)[0]
    assert even.gpu > tensor.gpu
    assert max(even.own) == pytest.approx(min(even.own))
    assert max(uneven.own) > 1.5 * min(uneven.own)
    assert all(own <= time.gpu for time in (even, uneven) for own in time.own)


def test_weights_and_cache_are_shared_out_whole() -> None:
    pipeline = Roofline(RTX8, KIMI, "pp", 8)
    assert sum(pipeline.weights_bytes(s) for s in range(8)) == pytest.approx(KIMI.total_bytes)
    assert sum(pipeline.cache_bytes(s) for s in range(8)) == pytest.approx(KIMI.kv_bytes * 61)
    expert = Roofline(RTX8, KIMI, "ep", 8)
    assert 8 * expert.weights_bytes(0) > KIMI.total_bytes
    assert expert.cache_bytes(0) == KIMI.kv_bytes * 61


@pytest.mark.parametrize(
    ("sharding", "ranks", "split", "word"),
    [("pp", 9, "even", "ranks"), ("ep", 0, "even", "ranks"), ("pp", 8, (61,), "split"), ("pp", 2, (60, 2), "split")],
)
def test_what_does_not_suit_is_refused(sharding: str, ranks: int, split: object, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Roofline(RTX8, KIMI, sharding, ranks, split)  # type: ignore[arg-type]
