"""Splits layers into contiguous stages of even cost; the head's cost weighs on the last stage."""

from __future__ import annotations

from collections.abc import Sequence

from engine.checkpoint.model_config import ModelConfig
from engine.checkpoint.parameters import parameters_of

TYPICAL_BATCH = 8
"""Decode requests a micro-batch that the split is balanced for: it decides how many experts a layer reads."""


def split_layers(costs: Sequence[float], stages: int, last_cost: float = 0.0) -> list[int]:
    """Bounds [0, ..., layers] of `stages` contiguous groups that minimise the largest group cost.

    `last_cost` is added to the last group. Every group gets at least one layer. Raise ValueError when there are more
    stages than layers.
    """
    layers = len(costs)
    if not 1 <= stages <= layers:
        raise ValueError(f"{layers} layers cannot be split over {stages} stages")
    prefix = [0.0]
    for cost in costs:
        prefix.append(prefix[-1] + cost)
    # best[s][i]: the least largest cost of the first i layers in s groups, and where the last of them starts.
    best: list[dict[int, tuple[float, int]]] = [{0: (0.0, 0)}]
    for stage in range(1, stages + 1):
        extra = last_cost if stage == stages else 0.0
        best.append(
            {
                stop: min(
                    (max(best[-1][start][0], prefix[stop] - prefix[start] + extra), -start)
                    for start in best[-1]
                    if start < stop
                )
                for stop in range(stage, layers - (stages - stage) + 1)
            }
        )
    bounds = [layers]
    for stage in range(stages, 0, -1):
        bounds.append(-best[stage][bounds[-1]][1])
    return bounds[::-1]


def stage_bounds(config: ModelConfig, stages: int) -> list[int]:
    """Layer bounds of each pipeline stage, balanced by the weights that a decode step of TYPICAL_BATCH reads.

    Distinct experts of a batch b: D(b) = E (1 - (1 - k/E)^b).
    """
    costs = [0.0] * (config.layers + 2)
    experts = config.experts
    touched = experts * (1 - (1 - config.experts_per_token / experts) ** TYPICAL_BATCH)
    for parameter in parameters_of(config):
        share = touched / experts if parameter.stacked else 1.0
        costs[parameter.unit] += parameter.elements() * share
    return split_layers(costs[1:-1], stages, costs[-1])
