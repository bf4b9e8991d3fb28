"""An experiment as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from sessions.bench.text import number, table
from sessions.compare.ab.analysis import Effect
from sessions.compare.ab.result import AbResult, MetricEffects
from sessions.compare.ab.simple import SimpleEffect, simple_effects
from sessions.compare.intervals import median_interval
from sessions.compare.pareto import pareto


def as_text(result: AbResult) -> str:
    """The whole experiment."""
    lines = [f"warning: {warning}" for warning in result.warnings]
    lines += [*table(list(cell_rows(result))), ""]
    for metric in result.metrics:
        aside = "" if metric is result.metrics[0] else ", which did not decide when to stop"
        lines += [f"effects on {metric.name} ({metric.unit}){aside}"]
        lines += [*table([effect_row(effect) for effect in metric.effects]), ""]
    simple = simple_effects(result)
    if simple:
        lines += [f"{result.metrics[0].name}, one knob at each value of another", *table(_simple_rows(simple)), ""]
    return "\n".join([*lines, tokens_sentence(result), method(result)])


def method(result: AbResult) -> str:
    """How the verdicts were reached, and why it ended."""
    looks = ", ".join(map(str, result.looks))
    return (
        f"{result.blocks} blocks, each with every combination once in a random order (seed {result.seed}); looks after "
        f"{looks} blocks, level {result.level:.3g} each ({result.alpha:g} in all). Wilcoxon signed ranks of the "
        f"blocks' log ratios, exact, Holm over the effects; intervals are simultaneous. An effect within "
        f"{result.margin:.0%} is negligible; ~ is undecided. Ended: {result.ended}."
    )


def tokens_sentence(result: AbResult) -> str:
    """Whether the knobs changed what was generated."""
    if result.same_tokens:
        return "Every run produced the same tokens."
    return "The runs did not all produce the same tokens."


def effect_row(effect: Effect) -> tuple[str, ...]:
    """Name, ratio with interval, verdict, p."""
    return (effect.name, ratio(effect), effect.verdict, f"p={effect.p_holm:.3g}")


def ratio(effect: Effect) -> str:
    """The ratio with its interval, where there is one."""
    if effect.low is None or effect.high is None:
        return f"{effect.ratio:.3f}x"
    return f"{effect.ratio:.3f}x [{effect.low:.3f}, {effect.high:.3f}]"


def headline(result: AbResult) -> str:
    """The largest decided effect in one sentence."""
    primary: MetricEffects = result.metrics[0]
    decided = [e for e in primary.effects if e.verdict in ("better", "worse", "changes")]
    if not decided:
        return f"No effect on {primary.name} was shown."
    largest = max(decided, key=lambda effect: max(effect.ratio, 1 / effect.ratio))
    if largest.kind == "interaction":
        one, _, two = largest.name.partition(" x ")
        return (
            f"{one} and {two} together multiply {primary.name} by {ratio(largest)} beyond what each does alone "
            f"(p={largest.p_holm:.3g})."
        )
    return f"{largest.name} multiplies {primary.name} by {ratio(largest)} (p={largest.p_holm:.3g})."


def cell_rows(result: AbResult) -> Iterator[tuple[str, ...]]:
    """A heading and a row a combination; * marks those that no other beats for both user and device."""
    yield ("", "tok/s", "/user", "/device", "TTFT p50", "ITL p50", "e2e p50", "waves", "J/token", "")
    front = pareto(result.cells)
    for cell, here in zip(result.cells, front, strict=True):
        (point,) = cell.points
        rate = median_interval(point.repetitions)
        interval = "" if rate.low is None or rate.high is None else f" [{number(rate.low)}, {number(rate.high)}]"
        yield (
            cell.label,
            f"{number(rate.value)}{interval}",
            number(here.tokens_per_s_per_user),
            number(here.tokens_per_s_per_device),
            f"{number(point.ttft_ms.p50)} ms",
            f"{number(point.itl_ms.p50)} ms",
            f"{number(point.e2e_ms.p50)} ms",
            number(point.waves),
            number(point.energy_j_per_token),
            "*" if here.best else "",
        )


def _simple_rows(simple: list[SimpleEffect]) -> list[tuple[str, ...]]:
    return [(f"{each.effect} at {each.at}", f"{each.ratio:.3f}x") for each in simple]
