"""Decode steps captured as CUDA graphs, one for each padded batch size, sharing one memory pool."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.plan import MicroBatchPlan
from engine.worker.marks import Mark

if TYPE_CHECKING:
    from engine.worker.stage import Stage

WARM_UP_RUNS = 2


def padded_sizes(largest: int) -> list[int]:
    """Batch sizes worth a graph of their own: every one up to 8, then steps of about an eighth of the size.

    Padding costs little more than its tokens' experts, hence exact sizes where few experts are read.
    """
    sizes = list(range(1, min(largest, 8) + 1))
    step = 8
    while sizes[-1] < largest:
        if sizes[-1] >= 16 * step:
            step *= 2
        sizes.append(min(sizes[-1] + step, largest))
    return sizes


class CapturedDecode:
    """One captured size: static inputs, the graph, static output (logits on the last stage, else hidden states)."""

    def __init__(self, stage: Stage, size: int, pool: object) -> None:
        device = stage.rows.device
        self.size = size
        self.packed = torch.full((3, size), -1, dtype=torch.int32, device=device)
        self.packed[0] = stage.rows.scratch
        self.hidden: Tensor | None = None
        if not stage.first:
            width, dtype = stage.decoder.config.hidden, next(iter(stage.decoder.weights.values())).dtype
            self.hidden = torch.zeros(size, width, dtype=dtype, device=device)
        side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_RUNS):
                self._step(stage)
        torch.cuda.current_stream(device).wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):  # type: ignore[arg-type]
            self.output, self.greedy = self._step(stage)

    def _step(self, stage: Stage) -> tuple[Tensor, Tensor | None]:
        tokens, batch = stage.rows.decode_batch(self.packed)
        output = stage.forward(tokens, self.hidden, batch)
        if not stage.last:
            return output, None
        logits = stage.decoder.logits(output)
        greedy = logits.argmax(-1)
        if stage.first:
            stage.rows.last_token[self.packed[0].long()] = greedy
        return logits, greedy

    def replay(self, stage: Stage, plan: MicroBatchPlan) -> tuple[Mark | None, Mark, Tensor, Tensor | None]:
        """Run the step for a plan's decode rows: (input's arrival, start, output, greedy tokens)."""
        count = len(plan.decode)
        packed = torch.from_numpy(stage.rows.decode_input(plan, self.size)).pin_memory()
        received = None
        if self.hidden is not None:
            received = stage.receive(self.hidden[:count])
        start = received if received is not None else stage.clock.mark()
        self.packed.copy_(packed, non_blocking=True)
        self.graph.replay()
        # The static output is overwritten by the next replay, which must not race a send that is still in flight.
        output = self.output[:count] if stage.last else self.output[:count].clone()
        return received, start, output, None if self.greedy is None else self.greedy[:count]


class DecodeGraphs:
    """Captures a size when it is first needed; dropped as a whole, before the process groups."""

    def __init__(self, stage: Stage, largest: int) -> None:
        self._stage = stage
        self._sizes = padded_sizes(largest)
        self._pool = torch.cuda.graph_pool_handle()
        self._captured: dict[int, CapturedDecode] = {}

    def get(self, count: int) -> CapturedDecode | None:
        """The graph for `count` decode rows, captured now if need be; None when there are more than any graph takes."""
        place = bisect_left(self._sizes, count)
        if place == len(self._sizes):
            return None
        size = self._sizes[place]
        if size not in self._captured:
            self._captured[size] = CapturedDecode(self._stage, size, self._pool)
        return self._captured[size]
