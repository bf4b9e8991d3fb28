"""What differed between two runs besides their figures."""

from __future__ import annotations

from typing import Any

import msgspec

from sessions.results import BenchPoint, BenchResult

IGNORED = {"workload.key", "workload.concurrencies", "workload.rates_per_s"}
CLOCK_TOLERANCE = 0.02
OUR_TOOL = "herdscope"


class Difference(msgspec.Struct, frozen=True):
    """One thing that was not the same: its name and its value in each of the two runs."""

    what: str
    base: str
    other: str


def differences(base: BenchResult, other: BenchResult) -> list[Difference]:
    """Knobs, engine, workload, machine and versions that differ; then clocks and throttling, point by point."""
    if not base.tool == other.tool == OUR_TOOL:
        return _of_other_tools(base, other)
    found: list[Difference] = []
    for part in ("knobs", "engine", "workload", "machine", "versions"):
        one, two = msgspec.to_builtins(getattr(base, part)), msgspec.to_builtins(getattr(other, part))
        for key in sorted(one.keys() | two.keys()):
            name = f"{part}.{key}"
            if name not in IGNORED and one.get(key) != two.get(key):
                found.append(Difference(name, _text(one.get(key)), _text(two.get(key))))
    if base.emulated != other.emulated:
        found.append(Difference("emulated", _text(base.emulated), _text(other.emulated)))
    for point in base.points:
        twin = matching(other, point)
        if twin is not None:
            found += _conditions(point, twin)
    return found


def _of_other_tools(base: BenchResult, other: BenchResult) -> list[Difference]:
    """Other tools keep neither knobs nor machine: what can be told is the tool and the model."""
    pairs = {"tool": (base.tool, other.tool), "engine.model": (base.engine.model, other.engine.model)}
    return [Difference(what, one, two) for what, (one, two) in pairs.items() if one != two]


def name_of(result: BenchResult) -> str:
    """What a run is called in a comparison."""
    return result.label or result.run


def load_name(point: BenchPoint) -> str:
    """What a point's load is called: C=16, 3/s for open arrivals, trace."""
    if point.load:
        return point.load
    return f"C={point.concurrency}" if point.rate_per_s is None else f"{point.rate_per_s:g}/s"


def matching(result: BenchResult, point: BenchPoint) -> BenchPoint | None:
    """The point of `result` that was measured at the same load."""
    return next((each for each in result.points if load_name(each) == load_name(point)), None)


def _conditions(base: BenchPoint, other: BenchPoint) -> list[Difference]:
    load = load_name(base)
    found: list[Difference] = []
    for one, two in zip(base.gpus, other.gpus, strict=False):
        where = f"{load} gpu{one.index}"
        if one.throttled != two.throttled:
            found.append(Difference(f"{where} throttled", _text(one.throttled), _text(two.throttled)))
        clocks = one.sm_clock_hertz, two.sm_clock_hertz
        if clocks[0] and clocks[1] and abs(clocks[0] / clocks[1] - 1) > CLOCK_TOLERANCE:
            found.append(Difference(f"{where} clock", _megahertz(clocks[0]), _megahertz(clocks[1])))
    digests = base.outputs_digest[:12], other.outputs_digest[:12]
    if all(digests) and digests[0] != digests[1]:
        found.append(Difference(f"{load} output tokens (digest)", *digests))
    return found


def _megahertz(hertz: float) -> str:
    return f"{hertz / 1e6:.0f} MHz"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)
