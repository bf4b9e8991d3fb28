"""What the driver tells the workers and what they answer, over engine/link.py."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.config import EngineConfig
from engine.plan import MicroBatchPlan
from sessions.knobs import Parallelism
from sessions.messages import Span

# --- driver to worker -------------------------------------------------------------------------------------------------


class Load(msgspec.Struct, frozen=True, tag="load"):
    """Join the process groups and load the weights for the configured parallelism. Answered by Loaded."""

    config: EngineConfig


class OpenCache(msgspec.Struct, frozen=True, tag="open_cache"):
    """Allocate the paged cache and the row table. Answered by Done."""

    blocks: int
    max_context: int


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Run a micro-batch. The rank that samples sends its Tokens."""

    plan: MicroBatchPlan


class SetGraphs(msgspec.Struct, frozen=True, tag="set_graphs"):
    """Replay captured decode steps from now on, or launch each kernel again. Not answered."""

    on: bool


class CheckSwitch(msgspec.Struct, frozen=True, tag="check_switch"):
    """Would this parallelism fit? Nothing changes. Answered by Room."""

    mode: Parallelism


class Switch(msgspec.Struct, frozen=True, tag="switch"):
    """Drop the cache, move the weights, forget every row. Answered by Switched; OpenCache follows."""

    mode: Parallelism


class StartProfile(msgspec.Struct, frozen=True, tag="start_profile"):
    """Start torch.profiler. Answered by Done."""

    folder: str


class EndProfile(msgspec.Struct, frozen=True, tag="end_profile"):
    """Stop it and write the trace. Answered by Trace."""


class TakeFingerprint(msgspec.Struct, frozen=True, tag="take_fingerprint"):
    """Hash the weights held. Answered by Fingerprint."""


class CountExperts(msgspec.Struct, frozen=True, tag="count_experts"):
    """Count the experts that tokens go to, from now on or no more. Answered by ExpertCounts so far."""

    on: bool


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Answered at once by Pong: aligns clocks."""

    t_ns: int


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End. Not answered."""


ToWorker = (
    Load
    | OpenCache
    | Run
    | SetGraphs
    | CheckSwitch
    | Switch
    | StartProfile
    | EndProfile
    | TakeFingerprint
    | CountExperts
    | Ping
    | Stop
)

# --- worker to driver -------------------------------------------------------------------------------------------------


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """A worker is up. Workers whose `clock` (host and boot) is the driver's share its monotonic clock."""

    rank: int
    pid: int
    host: str
    clock: str
    token: str


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """Weights are there. `cache_blocks`: how many cache blocks would fit beside them."""

    device: str
    gpu_uuid: str | None
    cache_blocks: int
    weight_bytes: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The last order was carried out."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The last order was refused, with one line. The worker goes on as it was, unless it was Load."""

    kind: Literal["config", "checkpoint", "memory", "knob", "error"]
    reason: str


class Room(msgspec.Struct, frozen=True, tag="room"):
    """Bytes a switch would need at its peak beside what stays, and what the rank may use."""

    needed_bytes: int
    allowed_bytes: int
    cache_blocks: int


class Switched(msgspec.Struct, frozen=True, tag="switched"):
    """Weights have moved. `extra_bytes`: most held beyond the fuller of the two layouts; `layer_bytes`: one layer."""

    cache_blocks: int
    extra_bytes: int
    layer_bytes: int
    moved_bytes: int


class Tokens(msgspec.Struct, frozen=True, tag="tokens"):
    """A micro-batch's tokens, in the order of its sampled rows; `t_ns` of the worker's clock."""

    step: int
    slot: int
    tokens: list[int]
    t_ns: int


class Spans(msgspec.Struct, frozen=True, tag="spans"):
    """Spans finished since the last such message, relative to `t_ns` of the worker's clock."""

    t_ns: int
    window_ns: int
    spans: list[Span]
    residual_ns: int


class Trace(msgspec.Struct, frozen=True, tag="trace"):
    """Where the profiler's trace was written."""

    path: str


class Fingerprint(msgspec.Struct, frozen=True, tag="fingerprint"):
    """A hash of each parameter's slice as held."""

    hashes: dict[str, str]


class ExpertCounts(msgspec.Struct, frozen=True, tag="expert_counts"):
    """For each layer of this rank: tokens routed to each expert, and distinct experts a micro-batch on average."""

    tokens: dict[int, list[int]]
    distinct: dict[int, float]
    micro_batches: int


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    """The worker's clock when it answered."""

    asked_ns: int
    t_ns: int


ToDriver = (
    Joined | Loaded | Done | Failed | Room | Switched | Tokens | Spans | Trace | Fingerprint | ExpertCounts | Pong
)
