"""Decode steps captured as CUDA graphs, one for each padded batch size, sharing one memory pool."""

from __future__ import annotations

from bisect import bisect_left
from typing import Protocol

import torch
from torch import Tensor

from engine.worker.rows import Inputs, Ints, RowTable

WARM_UP_RUNS = 2


class Capturable(Protocol):
    """The part of a stage that a graph captures. `first`: it takes tokens, no hidden states."""

    first: bool
    rows: RowTable

    def compute(self, inputs: Inputs, hidden: Tensor | None) -> Tensor:
        """Device operations only."""
        ...

    def hidden_buffer(self, tokens: int) -> Tensor:
        """Room for hidden states [tokens, hidden]."""
        ...


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
    """One captured size: its static inputs, the graph, its static output."""

    def __init__(self, stage: Capturable, size: int, pool: object) -> None:
        """Warm up on padding, which leaves no trace in the cache, then capture."""
        device = stage.rows.device
        self.size = size
        self._packed = torch.full((3, size), -1, dtype=torch.int32, device=device)
        self._packed[0] = stage.rows.scratch
        self.hidden = None if stage.first else stage.hidden_buffer(size).zero_()
        side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_RUNS):
                stage.compute(stage.rows.decode_inputs(self._packed), self.hidden)
        torch.cuda.current_stream(device).wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool):  # type: ignore[arg-type]
            self._output = stage.compute(stage.rows.decode_inputs(self._packed), self.hidden)

    def replay(self, packed: Ints) -> Tensor:
        """Run on `RowTable.decode_input` (and `hidden`, filled before); the next replay overwrites the output."""
        self._packed.copy_(torch.from_numpy(packed).pin_memory(), non_blocking=True)
        self._graph.replay()
        return self._output


class DecodeGraphs:
    """Captures a size when it is first needed; dropped as a whole, before the process groups."""

    def __init__(self, stage: Capturable, largest: int) -> None:
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
