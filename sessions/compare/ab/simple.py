"""Simple effects: what one knob does while another stands at each of its values."""

from __future__ import annotations

import itertools

import msgspec

from sessions.compare.ab.analysis import Block, ratio_at
from sessions.compare.ab.design import cells, shown
from sessions.compare.ab.result import AbResult


class SimpleEffect(msgspec.Struct, frozen=True):
    """The ratio of the deciding metric for one step of one knob, at one value of another (further knobs at their
    first)."""

    effect: str
    at: str
    ratio: float


def simple_effects(result: AbResult) -> list[SimpleEffect]:
    """Every step of every knob from its first value, at every value of every other knob; [] for a single knob."""
    factors, blocks = result.factors, _blocks(result)
    found: list[SimpleEffect] = []
    for (i, f), (j, g) in itertools.permutations(enumerate(factors), 2):
        for level, other in itertools.product(range(1, len(f.levels)), range(len(g.levels))):
            base = [0] * len(factors)
            base[j] = other
            moved = list(base)
            moved[i] = level
            effect = f"{f.knob} {shown(f.levels[0])} -> {shown(f.levels[level])}"
            at = f"{g.knob}={shown(g.levels[other])}"
            found.append(SimpleEffect(effect, at, ratio_at(blocks, tuple(moved), tuple(base))))
    return found


def _blocks(result: AbResult) -> list[Block]:
    names = cells(result.factors)
    blocks: list[Block] = [{} for _ in range(result.blocks)]
    for run in result.runs:
        blocks[run.block][names[run.cell]] = run.metrics[result.metrics[0].metric]
    return blocks
