"""The design of an experiment: factors, cells, and a random order that is the same for the same seed.

Every block runs each cell once, in an order of its own, so that a drift of the machine falls on all cells alike.
"""

from __future__ import annotations

import itertools
import random

import msgspec

from sessions.knobs import KNOB_NAMES, KnobError, KnobName, KnobValue, parse_knob

MAX_CELLS = 64


class DesignError(ValueError):
    """An experiment that cannot be run; the text is one line that names the mend."""


class Factor(msgspec.Struct, frozen=True):
    """A knob and the values it takes; effects are relative to the first."""

    knob: KnobName
    levels: list[KnobValue]

    @classmethod
    def parse(cls, text: str) -> Factor:
        """Read `admission=greedy,rebalance`. Raise DesignError."""
        name, _, values = text.partition("=")
        knob = next((each for each in KNOB_NAMES if each == name.replace("-", "_")), None)
        if knob is None:
            raise DesignError(f"no knob {name!r}: choose one of {', '.join(KNOB_NAMES)}")
        try:
            levels = [parse_knob(knob, value.strip()) for value in values.split(",")]
        except KnobError as error:
            raise DesignError(str(error)) from error
        if len(levels) < 2 or len(set(levels)) < len(levels):
            raise DesignError(f"{name} needs at least two different values, as in {name}=A,B")
        return cls(knob, levels)


Cell = tuple[int, ...]
"""The index of each factor's level."""


class Contrast(msgspec.Struct, frozen=True):
    """What is estimated: a factor's level against its first (`main`), or how that ratio changes with another factor's
    level (`interaction`). Weights of each cell's log value sum to 0."""

    name: str
    kind: str
    factors: list[int]
    levels: list[int]


def check(factors: list[Factor]) -> None:
    """Raise DesignError for no factor, a factor named twice, or too many cells."""
    if not factors:
        raise DesignError("name at least one knob to vary")
    knobs = [factor.knob for factor in factors]
    if len(set(knobs)) < len(knobs):
        raise DesignError("each knob can be varied once")
    if len(cells(factors)) > MAX_CELLS:
        raise DesignError(f"{len(cells(factors))} combinations are more than {MAX_CELLS}: vary fewer values")


def cells(factors: list[Factor]) -> list[Cell]:
    """Every combination of levels, the base first."""
    return list(itertools.product(*(range(len(factor.levels)) for factor in factors)))


def order(factors: list[Factor], block: int, seed: int) -> list[Cell]:
    """The order in which a block runs its cells."""
    shuffled = cells(factors)
    random.Random(f"{seed}/block/{block}").shuffle(shuffled)
    return shuffled


def setting(factors: list[Factor], cell: Cell) -> dict[KnobName, KnobValue]:
    """The knobs of a cell."""
    return {factor.knob: factor.levels[level] for factor, level in zip(factors, cell, strict=True)}


def cell_name(factors: list[Factor], cell: Cell) -> str:
    """The knobs of a cell, as a person writes them."""
    return ", ".join(f"{knob}={shown(value)}" for knob, value in setting(factors, cell).items())


def shown(value: KnobValue) -> str:
    """A knob's value as a person writes it."""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def contrasts(factors: list[Factor]) -> list[Contrast]:
    """All main effects, then all interactions of two factors."""
    found = [
        Contrast(f"{f.knob} {shown(f.levels[0])} -> {shown(f.levels[level])}", "main", [i], [level])
        for i, f in enumerate(factors)
        for level in range(1, len(f.levels))
    ]
    for (i, f), (j, g) in itertools.combinations(enumerate(factors), 2):
        for level, other in itertools.product(range(1, len(f.levels)), range(1, len(g.levels))):
            name = f"{f.knob}={shown(f.levels[level])} x {g.knob}={shown(g.levels[other])}"
            found.append(Contrast(name, "interaction", [i, j], [level, other]))
    return found


def weights(contrast: Contrast, factors: list[Factor]) -> dict[Cell, float]:
    """What each cell's log value counts in a contrast: +1/k where its factors stand at the contrast's levels, with the
    sign turned for each that stands at its first; averaged over the k settings of the other factors."""
    found: dict[Cell, float] = {}
    for cell in cells(factors):
        at = [cell[factor] for factor in contrast.factors]
        if all(here in (0, level) for here, level in zip(at, contrast.levels, strict=True)):
            found[cell] = -1.0 if sum(here == 0 for here in at) % 2 else 1.0
    settings = len(found) / 2 ** len(contrast.factors)
    return {cell: sign / settings for cell, sign in found.items()}
