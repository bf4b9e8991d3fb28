"""One rank's trace as columns: what its GPU did, what its host launched, and what both were annotated with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from probes.traces.intervals import Intervals, Times, union

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNKNOWN = -1


class Annotation(NamedTuple):
    """A named stretch of host (or GPU) time, ns."""

    name: str
    start: int
    end: int
    tid: str


class CommOp(NamedTuple):
    """One communication kernel. `op` is send, recv, all_reduce...; `src`, `dst` are ranks, -1 when not told."""

    start: int
    end: int
    op: str
    group: str
    elements: int
    bytes: int
    src: int
    dst: int


@dataclass(frozen=True)
class GpuOps:
    """Operations on the GPU, sorted by start; arrays of one length. `kind` holds OpKind, `name` indexes `names`."""

    start: Times
    end: Times
    stream: NDArray[np.int64]
    correlation: NDArray[np.int64]
    kind: NDArray[np.int8]
    expert: NDArray[np.bool_]
    name: NDArray[np.int32]
    names: list[str]

    def __len__(self) -> int:
        return len(self.start)

    def busy(self, mask: NDArray[np.bool_]) -> Intervals:
        """When any of the operations chosen by `mask` ran."""
        return union(self.start[mask], self.end[mask])


@dataclass(frozen=True)
class Launches:
    """Runtime calls that handed work to the GPU, sorted by start; `graph` marks replays of CUDA graphs."""

    start: Times
    end: Times
    correlation: NDArray[np.int64]
    graph: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class RankTrace:
    """One rank. Times are ns of that rank's own clock until `shifted` puts them on a common one.

    `stage` is its pipeline stage (0 without pipeline parallelism), `engine` who made it: sglang, vllm, herdscope or
    torch. `host_busy`: some thread ran operators or runtime calls; `host_blocked`: it waited for the GPU or a peer;
    `profiler_overhead`: the profiler itself worked.
    """

    source: str
    label: str
    rank: int
    world: int
    stage: int
    engine: str
    device: str
    with_stack: bool
    cut: bool
    ops: GpuOps
    comm: list[CommOp]
    launches: Launches
    annotations: list[Annotation]
    gpu_annotations: list[Annotation]
    host_busy: Intervals
    host_blocked: Intervals
    profiler_overhead: Intervals

    @property
    def span(self) -> tuple[int, int]:
        """From the first GPU operation's start to the last one's end."""
        return int(self.ops.start.min()), int(self.ops.end.max())
