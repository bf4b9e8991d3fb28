"""Effects of an experiment, on the logarithm of a metric: one value a block, tested by Wilcoxon's signed ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from sessions.compare.ab.design import Cell, Contrast, Factor, contrasts, weights
from sessions.compare.holm import holm
from sessions.compare.signed_rank import signed_rank

Verdict = Literal["better", "worse", "changes", "negligible", "~"]
LOG_DIGITS = 12
"""Log ratios are rounded here: what is left of two equal figures after rounding errors must not count as a sign."""
Block = dict[Cell, float]
"""One metric's value in every cell of a block."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One contrast. `ratio` multiplies the metric (of an interaction: multiplies the other knob's ratio), with its
    interval (None: too few blocks). verdict: better or worse for a main effect and changes for an interaction that is
    significant; negligible where the interval lies within the margin; ~ where neither is shown."""

    name: str
    kind: str
    ratio: float
    low: float | None
    high: float | None
    p: float
    p_holm: float
    verdict: Verdict


def effects(
    factors: list[Factor],
    blocks: Sequence[Block],
    alpha: float,
    margin: float,
    more_is_better: bool,
    decided: frozenset[str] = frozenset(),
) -> list[Effect]:
    """Every contrast over `blocks` (at least one, values above 0), at level `alpha`; those named in `decided` were
    significant at an earlier look and stay so."""
    wanted = contrasts(factors)
    tests = [signed_rank(_values(contrast, factors, blocks), alpha / len(wanted)) for contrast in wanted]
    corrected = holm([test.p for test in tests])
    return [
        Effect(
            name=contrast.name,
            kind=contrast.kind,
            ratio=math.exp(test.estimate),
            low=None if test.low is None else math.exp(test.low),
            high=None if test.high is None else math.exp(test.high),
            p=test.p,
            p_holm=p_holm,
            verdict=_verdict(
                contrast, test.estimate, test.low, test.high,
                p_holm <= alpha or contrast.name in decided, margin, more_is_better,
            ),
        )
        for contrast, test, p_holm in zip(wanted, tests, corrected, strict=True)
    ]  # fmt: skip


def ratio_at(blocks: Sequence[Block], cell: Cell, base: Cell) -> float:
    """The ratio of one cell to another, by the Hodges-Lehmann centre of the blocks' log ratios."""
    return math.exp(signed_rank([math.log(block[cell] / block[base]) for block in blocks]).estimate)


def _values(contrast: Contrast, factors: list[Factor], blocks: Sequence[Block]) -> list[float]:
    weight = weights(contrast, factors)
    return [round(math.fsum(w * math.log(block[cell]) for cell, w in weight.items()), LOG_DIGITS) for block in blocks]


def _verdict(
    contrast: Contrast,
    estimate: float,
    low: float | None,
    high: float | None,
    significant: bool,
    margin: float,
    more_is_better: bool,
) -> Verdict:
    if low is not None and high is not None and max(-low, high) < math.log1p(margin):
        return "negligible"
    if not significant:
        return "~"
    if contrast.kind == "interaction":
        return "changes"
    return "better" if (estimate > 0) == more_is_better else "worse"
