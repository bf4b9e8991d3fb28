"""Power, energy and conditions of the GPUs during a window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from sessions.energy import EnergyCounter
from sessions.messages import GpuFrame
from sessions.results import GpuConditions

HARMLESS_REASONS = ("gpu_idle", "applications_clocks_setting", "display_clock_setting")
Window = tuple[int, int]


def power(frames: Sequence[GpuFrame], window: Window) -> list[float | None] | None:
    """Mean watts of each GPU over the window (None: it tells none); None where there is no GPU."""
    found = [
        [frame.power_watts for frame in inside if frame.power_watts is not None] for inside in _by_gpu(frames, window)
    ]
    return [fmean(watts) if watts else None for watts in found] or None


def energy_per_token(frames: Sequence[GpuFrame], window: Window, tokens: int) -> float | None:
    """Joules a token over all GPUs: by the energy counters where every GPU has one, else mean power times time."""
    gpus = _by_gpu(frames, window)
    if not tokens or not gpus:
        return None
    seconds = (window[1] - window[0]) / 1e9
    counted = [_counted_watts(inside) for inside in gpus]
    watts = counted if None not in counted else power(frames, window)
    if watts is None or None in watts:
        return None
    return sum(each for each in watts if each is not None) * seconds / tokens


def conditions(frames: Sequence[GpuFrame], window: Window) -> list[GpuConditions]:
    """Clock, temperature and throttling of each GPU over the window."""
    return [
        GpuConditions(
            index=inside[0].index,
            name=inside[0].name,
            sm_clock_hertz=_mean([frame.sm_clock_hertz for frame in inside]),
            temperature_celsius=max(
                (f.temperature_celsius for f in inside if f.temperature_celsius is not None), default=None
            ),
            throttled=sorted({r for frame in inside for r in frame.clock_event_reasons if r not in HARMLESS_REASONS}),
        )
        for inside in _by_gpu(frames, window)
    ]


def over_repetitions(repetitions: Sequence[Sequence[GpuConditions]]) -> list[GpuConditions]:
    """The conditions of each GPU over several windows of the same GPUs."""
    return [
        GpuConditions(
            index=same[0].index,
            name=same[0].name,
            sm_clock_hertz=_mean([each.sm_clock_hertz for each in same]),
            temperature_celsius=_highest([each.temperature_celsius for each in same]),
            throttled=sorted({reason for each in same for reason in each.throttled}),
        )
        for same in zip(*(each for each in repetitions if each), strict=False)
    ]


def _by_gpu(frames: Sequence[GpuFrame], window: Window) -> list[list[GpuFrame]]:
    """The window's frames of each GPU, in order of index; the same GPU seen by two probes counts once."""
    gpus: dict[tuple[int, str], list[GpuFrame]] = defaultdict(list)
    for frame in frames:
        if window[0] <= frame.t_ns <= window[1]:
            gpus[frame.index, frame.uuid].append(frame)
    return [inside for _, inside in sorted(gpus.items())]


def _counted_watts(inside: Sequence[GpuFrame]) -> float | None:
    """Mean watts by the energy counter; None unless it was read twice within the window."""
    counter = EnergyCounter()
    for frame in inside:
        if frame.energy_joules_total is not None:
            counter.add(frame.t_ns, frame.energy_joules_total)
    return counter.watts()


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _highest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
