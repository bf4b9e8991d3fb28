"""What a diagnosis works from, whatever the source: spans, a recording, traces, slot sizes, or token times alone.

Times are integer nanoseconds on one clock. What a source cannot see is None or empty, and named in `cannot_see`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from sessions.knobs import Knobs
from sessions.messages import ModelInfo

Source = Literal["spans", "recording", "traces", "slots", "tokens"]
Parallelism = Literal["pp", "ep", "unknown"]


UNKNOWN_SLOT = -1


class StageSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One micro-batch on one stage, as on sessions.messages.Span: stage free, input there, computing, output handed on.

    compute: GPU time inside [start, end], None when not known. expert: of it in experts' kernels. launch: host time
    spent launching. kernels, launches: how many, None when not known. `step` is the same on all stages; `slot` may be
    UNKNOWN_SLOT.
    """

    stage: int
    rank: int
    step: int
    slot: int
    decode: int
    prefill: int
    wait: int
    ready: int
    start: int
    end: int
    sent: int
    launch: int = 0
    graph: bool = False
    compute: int | None = None
    expert: int | None = None
    kernels: int | None = None
    launches: int | None = None


class Decomposition(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of one rank's window: they sum to 1."""

    compute: float
    wire: float
    launch_gap: float
    comm_wait: float
    host: float
    bubble: float


class GpuBreakdown(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's recording by the definitions of Holistic Trace Analysis, ns: idle + compute + non_compute = span."""

    idle: int
    compute: int
    non_compute: int
    span: int


class RankTime(msgspec.Struct, frozen=True, kw_only=True):
    """Where one rank's window (ns) went."""

    rank: int
    stage: int
    label: str
    window: int
    decomposition: Decomposition
    breakdown: GpuBreakdown | None = None


class Communication(msgspec.Struct, frozen=True, kw_only=True):
    """What the ranks' communication kernels did, over all of the recording. Seconds.

    waiting: share of kernel time that was not transfer; None when partners are missing. operations: how many.
    bytes_per_operation, wire_per_operation: medians of those that moved data; None when not told. waiting_by_rank:
    each rank's main operation, its seconds in communication kernels, and the share of them that waited. hop_wire:
    seconds of transfer a step, by the stage that sends to the next one. last: for each rank the share of collectives
    that it was the last to join; empty without collectives. expert: each rank's experts' kernels time a collective.
    """

    kernel_s: float
    waiting: float | None
    operations: int
    bytes_per_operation: float | None = None
    wire_per_operation: float | None = None
    waiting_by_rank: dict[int, tuple[str, float, float]] = {}
    hop_wire: dict[int, float] = {}
    last: dict[int, float] = {}
    expert: dict[int, float] = {}


class GpuPower(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank's GPU drew in the mean, and its cap where that is told."""

    rank: int
    stage: int
    uuid: str
    name: str
    watts: float
    limit_watts: float | None


class SlotSample(msgspec.Struct, frozen=True, array_like=True):
    """Decode requests of every slot at an instant."""

    t_ns: int
    sizes: tuple[int, ...]


class Profiler(msgspec.Struct, frozen=True, kw_only=True):
    """What recording a trace cost: whether Python stacks were on, the profiler's own share of the window, and the
    share that the longest step took beyond a typical one (the first run of a shape, or the profiler)."""

    with_stack: bool
    overhead: float
    stalled: float


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one source told.

    spans: decode and prefill micro-batches, one rank a stage under pp, every rank under ep. slots: samples of slot
    sizes. slot_count: micro-batches allowed in flight, None when not told; least_slots: at least so many, which
    slots_assumed marks as a guess. overlap: share of the window in which more than one stage computes.
    cut_ranks: whose recording is incomplete, so that what it lacks looks like idling. window: ns
    that `ranks` and `spans` cover. tokens_per_s: output measured. token_times: client tokens, ns, when nothing else.
    host_by_stage: seconds a micro-batch in which a stage's GPU idled for its host's scheduling, where that was seen.
    driver_s_per_step: the scheduler's own time a micro-batch, which may be hidden. layers: [first, last) by stage.
    waiting: requests that are not running yet. hardware: the kind of GPU in words, empty when not told.
    """

    source: Source
    engine: str
    stages: int
    parallelism: Parallelism
    emulated: bool = False
    window: int = 0
    ranks: list[RankTime] = []
    spans: list[StageSpan] = []
    slots: list[SlotSample] = []
    slot_count: int | None = None
    least_slots: int = 1
    slots_assumed: bool = False
    graphs: bool | None = None
    tokens_per_s: float | None = None
    token_times: list[int] = []
    streams: int = 0
    waiting: int = 0
    hardware: str = ""
    host_by_stage: dict[int, float] = {}
    driver_s_per_step: float | None = None
    knobs: Knobs | None = None
    model: ModelInfo | None = None
    layers: dict[int, tuple[int, int]] = {}
    gpus: list[GpuPower] = []
    communication: Communication | None = None
    profiler: Profiler | None = None
    missing_ranks: list[int] = []
    cut_ranks: list[int] = []
    residual_ns: int | None = None
    overlap: float | None = None
    cannot_see: list[str] = []
    notes: list[str] = []

    @property
    def slots_allowed(self) -> int:
        """Micro-batches that may be in flight: what was told, or at least as many as the engine is known to allow."""
        return self.slot_count if self.slot_count is not None else self.least_slots
