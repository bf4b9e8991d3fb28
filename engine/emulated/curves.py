"""A stage's time as a function of the micro-batch's size, from measured micro-batches.

Sizes that were seen are interpolated; others follow the shape that the model's weights give:

    gpu(b) = fixed + (gpu(seen) - fixed) x B(b) / B(seen),   B(b) = rest + D(b)   in units of one expert's bytes

(Pipeline theory, docs/theory.md). What is not known of the shape (the fixed part, the rest) spans a band.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from engine.emulated.band import Band, around, exactly, ordered
from engine.emulated.launches import KERNELS_PER_LAYER
from engine.emulated.routing import distinct_experts

if TYPE_CHECKING:
    from engine.emulated.model_profile import ModelProfile

FIXED_US_PER_LAYER = Band(0.0, KERNELS_PER_LAYER * 1.35, KERNELS_PER_LAYER * 2.7)
"""Time of a layer beyond its bytes: none, as measured on two kinds of GPU (docs/emulation.md), twice that."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How the bytes of a decode step grow with its size. `rest`: bytes a layer reads whatever the size, in experts;
    `fixed_s`: seconds a layer beyond its bytes. A dense model (experts 0) is flat."""

    experts: int
    top_k: int
    rest: Band
    fixed_s: Band = FIXED_US_PER_LAYER.map(lambda us: us * 1e-6)
    routing_skew: float = 0.0

    def growth(self, size: int, seen: int, rest: float) -> float:
        """B(size) / B(seen)."""
        if not self.experts:
            return 1.0
        return (rest + self._distinct(size)) / (rest + self._distinct(seen))

    def _distinct(self, size: int) -> float:
        return distinct_experts(self.experts, self.top_k, size, self.routing_skew)


def shape_of(model: ModelProfile, first_layer: int, last_layer: int) -> Shape:
    """The shape of a stage of layers [first, last) of a model whose sizes are known; the head is the last stage's."""
    dense = max(0, min(last_layer, model.dense_layers) - first_layer)
    moe = last_layer - first_layer - dense
    if not moe:
        return Shape(experts=0, top_k=0, rest=exactly(1.0))
    head = model.head_bytes if last_layer == model.layers else 0.0
    other = (dense + moe) * model.attention_bytes + dense * model.dense_bytes + head
    rest = (other / moe + model.shared_bytes + model.router_bytes) / model.expert_bytes
    return Shape(experts=model.experts, top_k=model.top_k, rest=around(rest, 0.25), routing_skew=model.routing_skew)


def generic_shape(experts: int, top_k: int, layers: int, head: bool) -> Shape:
    """The shape of a stage of `layers` layers when only the experts' numbers are known.

    In the published models a layer's rest weighs 4 to 12 experts and the head (`head`: this stage has it) 50 to 130.
    """
    extra = Band(40.0, 80.0, 130.0).map(lambda e: e / layers) if head else exactly(0.0)
    rest = Band(3.0 + extra.low, 6.0 + extra.mid, 15.0 + extra.high)
    return Shape(experts=experts, top_k=top_k, rest=rest)


class StageSample(msgspec.Struct, frozen=True, kw_only=True):
    """One measured decode micro-batch on one stage, in seconds.

    tau_s: how long it held the stage. launch_s: host time spent launching, 0 when not known. busy_s: GPU time inside
    tau_s, None when not known.
    """

    decode: int
    tau_s: float
    launch_s: float = 0.0
    busy_s: float | None = None
    graph: bool = False


class StageCurve(msgspec.Struct, frozen=True, kw_only=True):
    """A stage's time by size: `gpu_s` and `tau_s` are medians by size seen, ascending; `launch_s` is the floor that
    launching puts under it (0 with CUDA graphs)."""

    sizes: tuple[int, ...]
    tau_s: tuple[float, ...]
    gpu_s: tuple[Band, ...]
    launch_s: float
    shape: Shape
    layers: int

    def at(self, size: int, *, graphs: bool = False) -> Band:
        """Seconds for a micro-batch of `size`; with `graphs`, as if launching cost nothing."""
        if not graphs and size in self.sizes:
            seen = self.tau_s[self.sizes.index(size)]
            return exactly(seen)
        gpu = self._gpu(size)
        return gpu if graphs else gpu.map(lambda s: max(s, self.launch_s))

    def _gpu(self, size: int) -> Band:
        below = [i for i, s in enumerate(self.sizes) if s <= size]
        above = [i for i, s in enumerate(self.sizes) if s >= size]
        if below and above:
            return self._between(size, below[-1], above[0])
        return self._beyond(size, below[-1] if below else above[0])

    def _between(self, size: int, i: int, j: int) -> Band:
        if i == j:
            return self.gpu_s[i]
        share = (size - self.sizes[i]) / (self.sizes[j] - self.sizes[i])
        a, b = self.gpu_s[i], self.gpu_s[j]
        return ordered(
            a.low + share * (b.low - a.low), a.mid + share * (b.mid - a.mid), a.high + share * (b.high - a.high)
        )

    def _beyond(self, size: int, nearest: int) -> Band:
        shape, seen, gpu = self.shape, self.sizes[nearest], self.gpu_s[nearest]
        ends = [
            self._extrapolate(size, seen, level, fixed, rest)
            for level in (gpu.low, gpu.high)
            for fixed in (shape.fixed_s.low, shape.fixed_s.high)
            for rest in (shape.rest.low, shape.rest.high)
        ]
        return ordered(min(ends), self._extrapolate(size, seen, gpu.mid, shape.fixed_s.mid, shape.rest.mid), max(ends))

    def _extrapolate(self, size: int, seen: int, level: float, fixed: float, rest: float) -> float:
        flat = min(fixed * self.layers, 0.8 * level)
        return flat + (level - flat) * self.shape.growth(size, seen, rest)


def fit_curve(
    samples: Iterable[StageSample], shape: Shape, layers: int, gpu_s: Callable[[int], Band] | None = None
) -> StageCurve:
    """The curve through the medians by size. Raise ValueError without samples.

    A micro-batch counts as launch-bound when launching took at least 95 % of its time: its GPU time is then `busy_s`,
    or, when that is not known, `gpu_s` of its size, or else anything from a tenth of the time up.
    """
    by_size: dict[int, list[StageSample]] = {}
    for sample in samples:
        if sample.decode > 0:
            by_size.setdefault(sample.decode, []).append(sample)
    if not by_size:
        raise ValueError("no decode micro-batch to fit a stage's time to")
    sizes = tuple(sorted(by_size))
    eager = [s.launch_s for group in by_size.values() for s in group if not s.graph]
    return StageCurve(
        sizes=sizes,
        tau_s=tuple(median(s.tau_s for s in by_size[size]) for size in sizes),
        gpu_s=tuple(_gpu_band(by_size[size], gpu_s(size) if gpu_s is not None else None) for size in sizes),
        launch_s=median(eager) if eager else 0.0,
        shape=shape,
        layers=layers,
    )


def _gpu_band(samples: Sequence[StageSample], expected: Band | None) -> Band:
    tau = median(s.tau_s for s in samples)
    busy = [s.busy_s for s in samples if s.busy_s is not None]
    if busy:
        value = min(tau, median(busy))
        return exactly(value)
    launch = median(s.launch_s for s in samples)
    if any(s.graph for s in samples) or launch < 0.95 * tau:
        return exactly(tau)
    if expected is not None:
        return expected.map(lambda seconds: min(seconds, tau))
    return Band(0.1 * tau, 0.5 * tau, tau)
