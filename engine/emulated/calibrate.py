"""Fits a hardware profile to measured runs, and says how far the fit can be trusted.

Least squares on the logarithms of measured over predicted, in the logarithms of the parameters (Levenberg-Marquardt),
with a weak pull to the profile's own values so that what the runs do not determine stays where it was. The error that
counts is the one on observations that the fit has not seen: each left out in turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from engine.config import ConfigError
from engine.emulated.hardware import Hardware
from engine.emulated.model_profile import ModelProfile
from engine.emulated.observations import Observation, RateObservation

PRIOR_WEIGHT = 0.01
UNFITTED_BAND = 0.25
"""Share by which a prediction from an unfitted profile may be off: holds 90 % of the validation tables."""
LEAST_BAND = 0.05


class Error(msgspec.Struct, frozen=True):
    """Mean absolute and mean signed relative error of predictions: (predicted - measured) / measured."""

    mape: float
    signed: float

    def __str__(self) -> str:
        return f"MAPE {100 * self.mape:.1f} %, signed {100 * self.signed:+.1f} %"


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """A fitted profile. `fitted` names its changed fields; `band` is the share that predictions may be off by."""

    hardware: Hardware
    fitted: dict[str, float]
    error: Error
    leave_one_out: Error | None
    band: float


def errors(predicted: Sequence[float], measured: Sequence[float]) -> Error:
    """Raise ValueError without any pair."""
    relative = [p / m - 1.0 for p, m in zip(predicted, measured, strict=True)]
    if not relative:
        raise ValueError("no prediction to compare")
    return Error(sum(map(abs, relative)) / len(relative), sum(relative) / len(relative))


def unfitted(hardware: Hardware, model: ModelProfile, observations: Sequence[Observation]) -> Error:
    """How far the profile as it stands is off."""
    return errors([o.predicted(hardware, model) for o in observations], [o.value for o in observations])


def calibrate(
    hardware: Hardware,
    model: ModelProfile,
    observations: Sequence[Observation],
    parameters: Sequence[str] | None = None,
) -> Calibration:
    """Fit `parameters` (default: what the observations can tell apart) and leave each observation out once.

    Raise ConfigError without observations or for a parameter that is no positive field of the profile.
    """
    if not observations:
        raise ConfigError("calibrate: no measured run given")
    names = tuple(parameters if parameters is not None else identifiable(observations))
    for name in names:
        if not isinstance(getattr(hardware, name, None), float) or getattr(hardware, name) <= 0:
            raise ConfigError(f"calibrate: {name!r} is not a positive figure of the hardware profile")
    best = _fit(hardware, model, observations, names)
    left_out = None
    band = UNFITTED_BAND
    if len(observations) > len(names):
        unseen = []
        for i, observation in enumerate(observations):
            others = [*observations[:i], *observations[i + 1 :]]
            unseen.append(observation.predicted(_fit(hardware, model, others, names), model))
        left_out = errors(unseen, [o.value for o in observations])
        logs = [math.log(u / o.value) for u, o in zip(unseen, observations, strict=True)]
        band = max(LEAST_BAND, math.exp(1.645 * math.sqrt(sum(x * x for x in logs) / len(logs))) - 1.0)
    return Calibration(
        hardware=best,
        fitted={name: getattr(best, name) for name in names},
        error=unfitted(best, model, observations),
        leave_one_out=left_out,
        band=band,
    )


def identifiable(observations: Sequence[Observation]) -> tuple[str, ...]:
    """Parameters worth fitting: eager runs tell of launches, those with graphs of kernels, then of the memory, then of
    the links (the all-reduce's, under tensor or expert parallelism)."""
    replayed = [o for o in observations if o.graphs]
    names = []
    if len(replayed) < len(observations):
        names.append("launch_us")
    if replayed:
        names.append("kernel_us")
    if len({_size(o) for o in replayed}) >= 3:
        names.append("memory_efficiency")
    rates = [o for o in observations if isinstance(o, RateObservation) and o.ranks > 1]
    if len({_size(o) for o in rates}) >= 4:
        names.append("hop_us" if rates[0].sharding == "pp" else "allreduce_step_us")
    return tuple(names)


def _size(observation: Observation) -> int:
    return observation.concurrency if isinstance(observation, RateObservation) else observation.decode


def _fit(
    hardware: Hardware, model: ModelProfile, observations: Sequence[Observation], names: Sequence[str]
) -> Hardware:
    import numpy as np

    start = [math.log(getattr(hardware, name)) for name in names]

    def profile(logs: Sequence[float]) -> Hardware:
        values = {
            n: min(1.0, math.exp(x)) if n.endswith("efficiency") else math.exp(x)
            for n, x in zip(names, logs, strict=True)
        }
        return msgspec.structs.replace(hardware, **values)

    def residuals(logs: Sequence[float]) -> list[float]:
        candidate = profile(logs)
        apart = [math.log(o.predicted(candidate, model) / o.value) for o in observations]
        return apart + [PRIOR_WEIGHT * (x - x0) for x, x0 in zip(logs, start, strict=True)]

    here, damping = list(start), 1e-3
    now = residuals(here)
    for _ in range(60):
        slopes = np.empty((len(now), len(names)))
        for j in range(len(names)):
            moved = [x + 1e-4 * (i == j) for i, x in enumerate(here)]
            slopes[:, j] = (np.asarray(residuals(moved)) - np.asarray(now)) / 1e-4
        normal = slopes.T @ slopes
        step = np.linalg.solve(normal + damping * np.eye(len(names)), -slopes.T @ np.asarray(now))
        there = [x + float(np.clip(s, -1.0, 1.0)) for x, s in zip(here, step, strict=True)]
        new = residuals(there)
        if sum(r * r for r in new) < sum(r * r for r in now):
            here, now, damping = there, new, damping / 5
            if float(np.abs(step).max()) < 1e-7:
                break
        else:
            damping *= 5
            if damping > 1e6:
                break
    return profile(here)
