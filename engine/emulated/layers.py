"""How layers are split over pipeline stages."""

from __future__ import annotations

from collections.abc import Sequence

from engine.config import ConfigError


def even_split(layers: int, stages: int) -> tuple[int, ...]:
    """Layers a stage as SGLang and vLLM split by default: equal, what is left over to the stages before the last."""
    _check(layers, stages)
    share, left = divmod(layers, stages)
    counts = [share] * stages
    for i in range(left):
        counts[(stages - 2 - i) % stages] += 1
    return tuple(counts)


def balanced_split(costs: Sequence[float], head: float, stages: int) -> tuple[int, ...]:
    """Layers a stage so that the dearest stage costs least; `head` is what the last stage does beside its layers.

    Exact, by dynamic programming over (stage, layers placed so far). Costs are in any one unit.
    """
    layers = len(costs)
    _check(layers, stages)
    total = [0.0]
    for cost in costs:
        total.append(total[-1] + cost)
    best: list[float] = [*total[:1], *(float("inf") for _ in costs)]
    choice: list[list[int]] = []
    for stage in range(stages):
        extra = head if stage == stages - 1 else 0.0
        row = [float("inf")] * (layers + 1)
        picks = [0] * (layers + 1)
        for end in range(stage + 1, layers - (stages - stage - 1) + 1):
            for start in range(stage, end):
                worst = max(best[start], total[end] - total[start] + extra)
                if worst < row[end]:
                    row[end], picks[end] = worst, start
        best = row
        choice.append(picks)
    counts: list[int] = []
    end = layers
    for picks in reversed(choice):
        counts.append(end - picks[end])
        end = picks[end]
    return tuple(reversed(counts))


def _check(layers: int, stages: int) -> None:
    if not 1 <= stages <= layers:
        raise ConfigError(f"pp: {stages} stages for {layers} layers: use 1 to {layers}")
