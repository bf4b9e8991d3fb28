"""Experiments with known truth: design, looks, effects, interactions, drift."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.compare.ab.analysis import effects
from sessions.compare.ab.design import (
    DesignError,
    Factor,
    cell_name,
    cells,
    check,
    contrasts,
    order,
    setting,
    weights,
)
from sessions.compare.ab.looks import first_look, look_schedule
from sessions.compare.ab.run import AbPlan, run_ab
from sessions.compare.mann_whitney import u_test
from sessions.knobs import KNOB_NAMES
from sessions.load.lengths import Lengths
from sessions.load.workload import LoadPoint, Workload
from sessions.messages import KnobReply
from tests.sessions.bench.virtual_target import SOURCE, VirtualTarget

ADMISSION = Factor("admission", ["greedy", "rebalance"])
DEPTH = Factor("async_depth", [1, 2, 4])
GRAPHS = Factor("cuda_graphs", [False, True])


def test_a_factor_is_read_from_the_command_line():
    assert Factor.parse("admission=greedy,rebalance") == ADMISSION
    assert Factor.parse("async-depth=1,2,4") == DEPTH
    assert Factor.parse("cuda_graphs=off,on") == GRAPHS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("speed=1,2", "no knob 'speed'"),
        ("admission=greedy", "at least two different values"),
        ("admission=greedy,greedy", "at least two different values"),
        ("admission=greedy,fast", "admission must be one of"),
        ("async_depth=1,99", "async_depth must be a whole number from 1 to 64"),
        ("admission", "admission must be one of"),
    ],
)
def test_a_factor_that_cannot_be_is_refused(text, said):
    with pytest.raises(DesignError, match=said):
        Factor.parse(text)


def test_a_design_that_cannot_be_is_refused():
    for factors, said in (([], "at least one"), ([ADMISSION, ADMISSION], "once")):
        with pytest.raises(DesignError, match=said):
            check(factors)
    many = [Factor("async_depth", list(range(1, 20))), Factor("max_micro_batch", [1, 2, 3, 4])]
    with pytest.raises(DesignError, match="76 combinations"):
        check(many)


@given(seed=st.integers(0, 10), block=st.integers(0, 20))
def test_every_block_runs_each_cell_once_in_an_order_that_the_seed_decides(seed, block):
    factors = [ADMISSION, DEPTH]
    first = order(factors, block, seed)
    assert sorted(first) == sorted(cells(factors)) == sorted(itertools.product(range(2), range(3)))
    assert first == order(factors, block, seed)


def test_orders_differ_between_blocks_and_seeds():
    orders = {tuple(order([ADMISSION, DEPTH], block, seed)) for block in range(10) for seed in range(10)}
    assert len(orders) > 80


def test_cells_have_names_and_settings():
    assert cell_name([ADMISSION, GRAPHS], (1, 0)) == "admission=rebalance, cuda_graphs=off"
    assert setting([ADMISSION, GRAPHS], (1, 1)) == {"admission": "rebalance", "cuda_graphs": True}
    assert set(setting([ADMISSION, DEPTH], (0, 2))) <= set(KNOB_NAMES)


def test_contrasts_are_the_main_effects_and_the_pairwise_interactions():
    names = [contrast.name for contrast in contrasts([ADMISSION, DEPTH])]
    assert names == [
        "admission greedy -> rebalance",
        "async_depth 1 -> 2",
        "async_depth 1 -> 4",
        "admission=rebalance x async_depth=2",
        "admission=rebalance x async_depth=4",
    ]


LOG_EFFECTS = st.floats(-1, 1)


@given(a=LOG_EFFECTS, b=LOG_EFFECTS, c=LOG_EFFECTS, ab=LOG_EFFECTS, base=LOG_EFFECTS)
def test_the_weights_recover_a_model_of_effects_exactly(a, b, c, ab, base):
    """log y = base + a A + b B + c C + ab A B: the main effect of A is averaged over B, that is a + ab / 2."""
    factors = [ADMISSION, GRAPHS, Factor("async_depth", [1, 4])]
    log = {cell: base + a * cell[0] + b * cell[1] + c * cell[2] + ab * cell[0] * cell[1] for cell in cells(factors)}
    found = {
        contrast.name: sum(weight * log[cell] for cell, weight in weights(contrast, factors).items())
        for contrast in contrasts(factors)
    }
    expected = [a + ab / 2, b + ab / 2, c, ab, 0.0, 0.0]
    assert list(found.values()) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("tests", [1, 3, 5])
def test_the_first_look_is_the_first_that_could_show_anything(tests):
    looks = look_schedule(tests, 0.05, None)
    level = 0.05 / len(looks)
    assert 2 / 2 ** looks[0] * tests <= level
    assert 2 / 2 ** (looks[0] - 1) * tests > level
    assert look_schedule(tests, 0.05, looks[0] + 7)[-1] == looks[0] + 7


def test_too_few_repetitions_are_refused_with_the_number_that_is_needed():
    with pytest.raises(DesignError, match=r"5 repetitions cannot show anything: 6 are the fewest"):
        look_schedule(1, 0.05, 5)
    assert look_schedule(1, 0.05, 6) == [6] and first_look(1, 0.05, 1) == 6


def simulate(rng: random.Random, blocks: int, ratios: dict, noise: float = 0.03, drift: float = 0.0) -> list[dict]:
    factors = [ADMISSION, GRAPHS]
    found = []
    step = 0
    for block in range(blocks):
        values = {}
        for cell in order(factors, block, 1):
            values[cell] = 100 * ratios.get(cell, 1.0) * rng.lognormvariate(drift * step, noise)
            step += 1
        found.append(values)
    return found


def sequential(rng: random.Random, ratios: dict, **fields) -> list[str]:
    """The claims of an experiment that looks as `look_schedule` says and stops when all is decided."""
    looks = look_schedule(3, 0.05, None)
    level = 0.05 / len(looks)
    blocks = simulate(rng, looks[-1], ratios, **fields)
    decided: frozenset[str] = frozenset()
    for look in looks:
        seen = effects([ADMISSION, GRAPHS], blocks[:look], level, 0.0, True, decided)
        decided |= {effect.name for effect in seen if effect.p_holm <= level}
    return sorted(decided)


def test_looking_early_and_often_makes_no_more_than_5_percent_false_claims():
    rng = random.Random(11)
    false = sum(bool(sequential(rng, {})) for _ in range(1000))
    assert false <= 50


def test_a_planted_interaction_is_found_and_named():
    rng = random.Random(2)
    ratios = {(1, 0): 1.0, (0, 1): 1.5, (1, 1): 3.0}
    looks = look_schedule(3, 0.05, None)
    seen = effects([ADMISSION, GRAPHS], simulate(rng, looks[1], ratios), 0.05 / len(looks), 0.02, True)
    by_name = {effect.name: effect for effect in seen}
    joint = by_name["admission=rebalance x cuda_graphs=on"]
    assert joint.verdict == "changes" and joint.low < 2.0 < joint.high
    assert by_name["admission greedy -> rebalance"].verdict == "better"
    assert by_name["admission greedy -> rebalance"].ratio == pytest.approx(math.sqrt(2), rel=0.05)


def test_equal_figures_that_rounding_errors_set_apart_are_no_effect():
    blocks = [{(0, 0): 0.1, (0, 1): 0.3, (1, 0): 0.2, (1, 1): 0.6}] * 12
    seen = {effect.name: effect for effect in effects([ADMISSION, GRAPHS], blocks, 0.0125, 0.0, True)}
    assert seen["admission=rebalance x cuda_graphs=on"].p == 1.0


def test_a_small_enough_effect_is_called_negligible():
    seen = effects([ADMISSION, GRAPHS], simulate(random.Random(3), 12, {}, noise=0.002), 0.0125, 0.02, True)
    assert {effect.verdict for effect in seen} == {"negligible"}


def test_for_a_latency_less_is_better():
    seen = effects([ADMISSION], [{(0,): 100.0, (1,): 50.0 + i} for i in range(9)], 0.05, 0.02, False)
    assert [effect.verdict for effect in seen] == ["better"]


def test_interleaving_removes_a_drift_that_a_then_b_does_not():
    """Equal cells on a machine that slows by 0.5 % a run: A-then-B is fooled, blocks in random order are not."""
    rng = random.Random(5)
    fooled = interleaved = 0
    for _ in range(300):
        first, second = ([rng.lognormvariate(-0.005 * (start + i), 0.01) for i in range(9)] for start in (0, 9))
        fooled += u_test(first, second).p <= 0.05
        blocks = simulate(rng, 9, {}, noise=0.01, drift=-0.005)
        seen = effects([ADMISSION, GRAPHS], blocks, 0.05, 0.0, True)
        interleaved += any(effect.p_holm <= 0.05 for effect in seen)
    assert fooled / 300 > 0.9
    assert interleaved / 300 <= 0.09


class KnobbedTarget(VirtualTarget):
    """Rebalance is 1.5x as fast, and only from depth 4 on; graphs cannot be turned."""

    def turn(self, knob, value) -> KnobReply:
        import msgspec

        if knob == "cuda_graphs" and value:
            return KnobReply(
                source=SOURCE, t_ns=0, id="1", to="b", ok=False, reason="no CUDA device", knob=knob, applied=False
            )
        knobs = msgspec.structs.replace(self.knobs.knobs, **{knob: value})
        self.knobs = msgspec.structs.replace(self.knobs, knobs=knobs)
        fast = knobs.admission == "rebalance" and knobs.async_depth >= 4
        self.noise = random.Random(str(knobs))
        self.cycle_ns = 10_000_000 if not fast else 6_666_667
        return super().turn(knob, value)


def plan(*factors: Factor, **fields) -> AbPlan:
    workload = Workload(prompt_tokens=Lengths(3, 3), output_tokens=Lengths(10, 10))
    return AbPlan(factors=list(factors), workload=workload, point=LoadPoint(concurrency=4), **fields)


def test_an_experiment_finds_the_effects_stops_early_and_puts_the_knobs_back():
    target = KnobbedTarget()
    before = target.knobs.knobs
    seen = []
    result = run_ab(target, plan(ADMISSION, Factor("async_depth", [1, 4])), report=seen.append)
    assert target.knobs.knobs == before
    assert result.ended == "every effect is decided" and result.blocks == result.looks[0]
    throughput = result.metrics[0]
    assert throughput.metric == "output_tokens_per_s"
    verdicts = {effect.name: effect.verdict for effect in throughput.effects}
    assert verdicts == {
        "admission greedy -> rebalance": "better",
        "async_depth 1 -> 4": "better",
        "admission=rebalance x async_depth=4": "changes",
    }
    assert throughput.effects[2].ratio == pytest.approx(1.5, rel=0.01)
    assert [cell.label for cell in result.cells][-1] == "admission=rebalance, async_depth=4"
    assert result.cells[-1].knobs.async_depth == 4
    assert all(len(cell.points[0].repetitions) == result.blocks for cell in result.cells)
    assert len(result.runs) == result.blocks * 4 and result.same_tokens
    assert seen[-1].done < seen[-1].most


def test_a_knob_that_cannot_be_turned_ends_the_experiment_with_the_reason():
    target = KnobbedTarget()
    with pytest.raises(DesignError, match="cuda_graphs cannot be turned to True: no CUDA device"):
        run_ab(target, plan(GRAPHS))
    assert target.turned[-1] == ("cuda_graphs", False)
