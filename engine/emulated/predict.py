"""Steady decode in closed loop without simulating requests: slot sizes by policy, then the max-plus recursion."""

from __future__ import annotations

from typing import NamedTuple

from engine.emulated.counterfactual import even_sizes
from engine.emulated.pipeline import Cohort, steady_state
from engine.emulated.roofline import Roofline, decode_work
from sessions.knobs import Knobs


class Prediction(NamedTuple):
    """Output tokens a second of all requests, ms between a request's tokens, micro-batch sizes, and each stage's busy
    share and its GPUs' mean watts."""

    tokens_per_s: float
    itl_ms: float
    sizes: tuple[int, ...]
    occupancy: tuple[float, ...]
    watts: tuple[float, ...]


def slot_sizes(knobs: Knobs, concurrency: int) -> tuple[int, ...]:
    """Requests in each slot that has some, of a burst of `concurrency` requests.

    Greedy fills slot after slot up to max_micro_batch, capped and decode-cap up to the even share rounded up, and
    rebalance keeps sizes that differ by at most one. What no slot holds waits.
    """
    held = min(concurrency, knobs.async_depth * knobs.max_micro_batch)
    if knobs.admission == "rebalance":
        return even_sizes(held, knobs.async_depth)
    share = knobs.max_micro_batch
    if knobs.admission != "greedy":
        share = min(share, -(-held // knobs.async_depth))
    full, rest = divmod(held, share)
    return (share,) * full + ((rest,) if rest else ())


def predict(roofline: Roofline, knobs: Knobs, concurrency: int, context: int = 0) -> Prediction:
    """Steady decode of `concurrency` requests with `context` cached tokens each."""
    sizes = slot_sizes(knobs, concurrency)
    works = [decode_work(size, context) for size in sizes]
    times = [roofline.stage_times(work, knobs.cuda_graphs) for work in works]
    cohorts = [Cohort(size, tuple(t.stage for t in row)) for size, row in zip(sizes, times, strict=True)]
    stages = roofline.stages
    hops = [roofline.hop_s(s, s + 1, max(sizes)) for s in range(stages - 1)]
    feedback = roofline.feedback_s(max(sizes)) + roofline.hardware.host_us * 1e-6
    steady = steady_state(cohorts, hops, feedback)
    hardware = roofline.hardware
    working = [sum(row[s].gpu for row in times) / steady.cycle for s in range(stages)]
    watts = [hardware.idle_watts + (hardware.decode_watts - hardware.idle_watts) * min(1.0, w) for w in working]
    return Prediction(steady.rate, steady.cycle * 1e3, sizes, steady.occupancy, tuple(watts))
