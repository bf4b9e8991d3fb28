from __future__ import annotations

import pytest

from engine.checkpoint.parameters import Parameter, parameters_of
from engine.config import ConfigError
from engine.parallel.layout import Layout, Range, ep_layout, held_ranges, pp_layout
from engine.parallel.moves import moves_of, unit_order
from engine.presets import DEEPSEEK_TINY, PRESETS, QWEN3_TINY

SHAPES = [QWEN3_TINY, DEEPSEEK_TINY]


def entries(ranges: tuple[Range, ...]) -> list[int]:
    return [entry for r in ranges for entry in range(r.start, r.stop)]


def layouts(config) -> list[Layout]:
    return [pp_layout(config, n) for n in (1, 2, 4)] + [ep_layout(config, n) for n in (1, 2, 4)]


@pytest.mark.parametrize("config", SHAPES, ids=lambda c: c.family)
def test_every_layout_holds_every_entry(config) -> None:
    for layout in layouts(config):
        for parameter in parameters_of(config):
            held = {e for rank in range(layout.ranks) for e in entries(held_ranges(parameter, layout, rank))}
            assert held == set(range(parameter.shape[parameter.axis or 0])), parameter.name


def test_fewer_kv_heads_than_ranks_are_replicated() -> None:
    qkv = next(p for p in parameters_of(QWEN3_TINY) if p.name == "layers.0.qkv")
    held = [held_ranges(qkv, ep_layout(QWEN3_TINY, 4), rank) for rank in range(4)]
    assert held[0] == (Range(0, 16), Range(64, 80), Range(96, 112))
    assert held[1] == (Range(16, 32), Range(64, 80), Range(96, 112))
    assert held[2] == (Range(32, 48), Range(80, 96), Range(112, 128))


@pytest.mark.parametrize("config", SHAPES, ids=lambda c: c.family)
def test_moves_fill_every_slice_exactly_once_and_from_a_holder(config) -> None:
    for before in layouts(config):
        for after in layouts(config):
            for parameter in parameters_of(config):
                got: dict[int, list[int]] = {rank: [] for rank in range(after.ranks)}
                for move in moves_of(parameter, before, after):
                    moved = list(range(move.start, move.stop))
                    assert set(moved) <= set(entries(held_ranges(parameter, before, move.source)))
                    got[move.target] += moved
                for rank, filled in got.items():
                    assert filled == entries(held_ranges(parameter, after, rank))


def extra_bytes(parameters: list[Parameter], before: Layout, after: Layout, rank: int) -> tuple[int, int]:
    """(peak over what the fuller layout needs, the largest unit), counting slices only."""
    units: dict[int, list[Parameter]] = {}
    for parameter in parameters:
        units.setdefault(parameter.unit, []).append(parameter)

    def size(unit: int, layout: Layout) -> int:
        total = 0
        for p in units[unit]:
            total += len(entries(held_ranges(p, layout, rank))) * p.elements() // p.shape[p.axis or 0]
        return total

    now = start = sum(size(unit, before) for unit in units)
    peak = 0
    for unit in unit_order(before, after):
        now += size(unit, after)
        peak = max(peak, now)
        now -= size(unit, before)
    assert now == sum(size(unit, after) for unit in units)
    return peak - max(start, now), max(sum(p.elements() for p in held) for held in units.values())


@pytest.mark.parametrize("name", ["qwen3-tiny", "deepseek-tiny"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_switch_needs_at_most_one_layer_more_than_the_fuller_layout(name: str, ranks: int) -> None:
    config = PRESETS[name]
    pp, ep = pp_layout(config, ranks), ep_layout(config, ranks)
    for before, after in ((pp, ep), (ep, pp)):
        for rank in range(ranks):
            extra, largest = extra_bytes(parameters_of(config), before, after, rank)
            assert extra <= largest


def test_sizes_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ConfigError, match="ep 3 does not divide the model's experts"):
        ep_layout(QWEN3_TINY, 3)
    with pytest.raises(ConfigError, match="pp 9 is more than the model's 8 layers"):
        pp_layout(QWEN3_TINY, 9)
