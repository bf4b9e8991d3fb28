"""The one vocabulary: every message that a live, recorded, replayed or remote session is made of.

Each message is a frozen struct, tagged by `kind`, and travels as MessagePack. Times are monotonic nanoseconds of the
host that `source` names; that source's SessionHeader ties them to UTC. To grow the vocabulary add a field with a
default, or a new kind: readers skip fields they do not know and count kinds they do not know. Anything else needs a
new SCHEMA_VERSION.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from sessions.knobs import KnobName, Knobs, KnobValue
from sessions.results import BenchPoint, BenchResult

SCHEMA_VERSION = 1

Role = Literal["engine", "console", "probe", "load", "bench", "server", "cli"]


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", gc=False):
    """What every message carries: who said it (see sessions.clock) and when (monotonic ns of that host).

    Messages are frozen trees, so the garbage collector need not look at them (a session holds very many).
    """

    source: str
    t_ns: int


# --- who is there ----------------------------------------------------------------------------------------------------


class SessionHeader(Message, frozen=True, kw_only=True, tag="session_header"):
    """Opens a source's stream. `wall_ns` is UTC (ns since 1970) at the monotonic instant `t_ns`."""

    session: str
    wall_ns: int
    host: str
    schema: int = SCHEMA_VERSION
    versions: dict[str, str] = {}
    command_line: list[str] = []
    emulated: bool = False
    title: str = ""


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """A peer joined the channel. `wall_ns` is UTC at `t_ns`."""

    role: Role
    host: str
    pid: int
    wall_ns: int
    schema: int = SCHEMA_VERSION


class Goodbye(Message, frozen=True, kw_only=True, tag="goodbye"):
    """A peer left; `expected` is False when the carrier noticed its death instead of being told."""

    peer: str
    reason: str
    expected: bool = True


class DroppedFrames(Message, frozen=True, kw_only=True, tag="dropped_frames"):
    """Told to a slow reader: this many frames, the oldest first, were dropped for it since the last such message."""

    count: int


# --- the engine ------------------------------------------------------------------------------------------------------

Phase = Literal["starting", "loading", "ready", "switching", "stopping", "stopped", "failed"]


class ModelInfo(msgspec.Struct, frozen=True):
    """What the engine serves: `name` is a checkpoint's folder or a preset; sizes are counts, 0 where not told."""

    name: str
    architecture: str
    layers: int
    hidden: int
    experts: int
    experts_per_token: int
    vocab: int
    dtype: str
    load_format: str = "auto"
    parameters: int = 0


class RankInfo(msgspec.Struct, frozen=True):
    """One worker: its stage under pp (0 under ep), layers [first_layer, last_layer) and where it runs."""

    rank: int
    stage: int
    first_layer: int
    last_layer: int
    device: str
    host: str
    pid: int
    gpu_uuid: str | None = None


class EngineState(Message, frozen=True, kw_only=True, tag="engine_state"):
    """What the engine is doing. Retained: a late joiner receives the last one."""

    phase: Phase
    detail: str = ""
    progress: float | None = None
    model: ModelInfo | None = None
    ranks: list[RankInfo] = []
    stages: int = 1
    kv_blocks: int = 0
    block_size: int = 0
    max_context: int = 0
    emulated: bool = False
    hardware: str = ""


class KnobState(Message, frozen=True, kw_only=True, tag="knob_state"):
    """Every knob's value now, and for each that cannot be turned here the reason. Retained."""

    knobs: Knobs
    unavailable: dict[KnobName, str] = {}
    token_budget: int = 0


class Fault(Message, frozen=True, kw_only=True, tag="fault"):
    """Something died or failed: which rank, why, and its last log lines. Retained until the engine is ready again."""

    what: str
    cause: str
    rank: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    last_log: list[str] = []
    restartable: bool = True


class LogLine(msgspec.Struct, frozen=True, array_like=True):
    """One line of a process's output. `rank` is None for the driver; `t_ns` monotonic."""

    t_ns: int
    rank: int | None
    text: str


class LogLines(Message, frozen=True, kw_only=True, tag="log_lines"):
    """Engine log lines since the last such message, oldest first."""

    lines: list[LogLine]


# --- frames: batches of measurements at about 10 Hz ------------------------------------------------------------------


class Span(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One micro-batch on one stage. The five instants are ns relative to the frame's `t_ns`, in this order:

    wait   the stage was free and began to wait for this micro-batch's input;
    ready  the input had arrived;
    start  computing began (launch gap: start - ready);
    end    computing ended;
    sent   the output was handed to the next stage (or the tokens to the driver).

    `launch_ns` is the host time spent launching, which may overlap computing. `step` counts micro-batches over the
    engine's life, so it names the same micro-batch on every stage.
    """

    slot: int
    step: int
    decode: int
    prefill_tokens: int
    wait: int
    ready: int
    start: int
    end: int
    sent: int
    launch_ns: int = 0
    graph: bool = False


class StageFrame(Message, frozen=True, kw_only=True, tag="stage_frame"):
    """Spans that one rank finished in (t_ns - window_ns, t_ns].

    `clock_residual_ns` bounds the error left after this rank's clock was aligned with the driver's.
    """

    stage: int
    rank: int
    window_ns: int
    spans: list[Span]
    clock_residual_ns: int = 0


class SlotSize(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Live requests of one slot at an instant, by what they do next."""

    decode: int
    prefill: int
    in_flight: bool


class QueueFrame(Message, frozen=True, kw_only=True, tag="queue_frame"):
    """Queues at an instant, and counters since the engine started (`*_total`).

    herd_index_sum and waves_sum add H and N_eff of the slots' decode requests at every scheduling instant where they
    are defined, herd_samples counts those instants: the means over any span are differences between two frames.
    """

    waiting: int
    running: int
    slots: list[SlotSize]
    in_flight: int
    kv_blocks_used: int
    kv_blocks: int
    output_tokens_total: int
    prompt_tokens_total: int
    finished_total: int = 0
    cancelled_total: int = 0
    refused_total: int = 0
    preempted_total: int = 0
    steps_total: int = 0
    driver_ns_total: int = 0
    herd_index_sum: float = 0.0
    waves_sum: float = 0.0
    herd_samples: int = 0


class GpuFrame(Message, frozen=True, kw_only=True, tag="gpu_frame"):
    """One GPU at an instant, in base units; a field that cannot be read is None and named in `unavailable`."""

    index: int
    uuid: str
    name: str
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules_total: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    utilization_ratio: float | None = None
    sm_clock_hertz: float | None = None
    memory_clock_hertz: float | None = None
    temperature_celsius: float | None = None
    pcie_rx_bytes_per_second: float | None = None
    pcie_tx_bytes_per_second: float | None = None
    clock_event_reasons: list[str] = []
    unavailable: dict[str, str] = {}
    emulated: bool = False


class ProcessSample(msgspec.Struct, frozen=True, array_like=True):
    """One process: `cpu_ratio` 1.0 is one core kept busy; memory is resident bytes."""

    pid: int
    role: str
    rank: int | None
    cpu_ratio: float
    memory_bytes: int


class HostFrame(Message, frozen=True, kw_only=True, tag="host_frame"):
    """The host at an instant. `cpu_ratio` 1.0 is all cores busy; `load` is the 1-minute load average."""

    host: str
    cpu_ratio: float
    cores: int
    load: float
    memory_used_bytes: int
    memory_total_bytes: int
    processes: list[ProcessSample] = []


# --- requests and tokens ---------------------------------------------------------------------------------------------

FinishReason = Literal["length", "stop", "cancelled", "refused", "failed"]


class RequestSpec(msgspec.Struct, frozen=True):
    """One request for tokens. `prompt` holds token ids, or text that the engine's tokenizer turns into them.

    temperature 0 is greedy. `seed` and the position decide every random draw, so a recomputed request repeats
    itself. Lower `priority` runs earlier.
    """

    id: str
    prompt: list[int] | str
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop: list[str] = []
    ignore_eos: bool = False
    priority: int = 0


class TokenEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Tokens of one request, produced together."""

    request: str
    tokens: list[int]
    text: str = ""


class Finished(msgspec.Struct, frozen=True):
    """A request's end. Every submitted request gets exactly one."""

    request: str
    reason: FinishReason
    prompt_tokens: int
    output_tokens: int
    detail: str = ""


class TokenFrame(Message, frozen=True, kw_only=True, tag="token_frame"):
    """Tokens of one micro-batch's requests, sampled at `t_ns`, and the requests that ended with it."""

    events: list[TokenEvent]
    finished: list[Finished] = []


# --- commands and their answers --------------------------------------------------------------------------------------


class Command(Message, frozen=True, kw_only=True):
    """A request with an answer: `id` is unique per asker, and exactly one Reply carries it back."""

    id: str


class Reply(Message, frozen=True, kw_only=True, tag="reply"):
    """The answer to the command with this `id`, asked by `to`; `reason` is one line when not ok."""

    id: str
    to: str
    ok: bool
    reason: str = ""


class SubmitRequests(Command, frozen=True, kw_only=True, tag="submit_requests"):
    """Ask the engine for tokens. All requests of one message enter the waiting queue at the same instant."""

    requests: list[RequestSpec]


class CancelRequests(Command, frozen=True, kw_only=True, tag="cancel_requests"):
    """End these requests (an empty list: all of this asker's)."""

    requests: list[str]


class KnobRequest(Command, frozen=True, kw_only=True, tag="knob_request"):
    """Turn one knob."""

    knob: KnobName
    value: KnobValue


class KnobReply(Reply, frozen=True, kw_only=True, tag="knob_reply"):
    """What a knob request did: the value in force now, how long it took and how many requests were recomputed."""

    knob: KnobName
    applied: KnobValue
    took_ms: float = 0.0
    preempted: int = 0


class LoadRequest(Command, frozen=True, kw_only=True, tag="load_request"):
    """Change the running load generator: a closed loop of `concurrency`, or arrivals at `rate` a second; 0 pauses."""

    concurrency: int | None = None
    rate: float | None = None


class LoadState(Message, frozen=True, kw_only=True, tag="load_state"):
    """What the load generator does. Retained."""

    description: str
    concurrency: int | None = None
    rate: float | None = None
    submitted_total: int = 0
    finished_total: int = 0
    cancelled_total: int = 0
    refused_total: int = 0


class ProfileRequest(Command, frozen=True, kw_only=True, tag="profile_request"):
    """Record `steps` micro-batches on every rank with torch.profiler and write one trace a rank under `folder`."""

    steps: int
    folder: str


class ProfileReply(Reply, frozen=True, kw_only=True, tag="profile_reply"):
    """Where the traces are, and output tokens a second while profiling and just before."""

    traces: list[str] = []
    tokens_per_s_profiled: float | None = None
    tokens_per_s_before: float | None = None


class StopEngine(Command, frozen=True, kw_only=True, tag="stop_engine"):
    """End the engine and all its workers."""


# --- benchmark -------------------------------------------------------------------------------------------------------

BenchStage = Literal["start", "warmup", "measure", "point", "done", "failed"]


class BenchPhase(Message, frozen=True, kw_only=True, tag="bench_phase"):
    """Progress of a benchmark run; `point` is set when one concurrency is done."""

    run: str
    phase: BenchStage
    progress: float
    concurrency: int | None = None
    detail: str = ""
    point: BenchPoint | None = None


class BenchDone(Message, frozen=True, kw_only=True, tag="bench_done"):
    """A finished benchmark run."""

    run: str
    result: BenchResult


class Marker(Message, frozen=True, kw_only=True, tag="marker"):
    """A point of interest on the time line: a knob change, a verdict change, a benchmark phase, an alert, a note."""

    category: Literal["knob", "verdict", "bench", "alert", "note"]
    text: str


class Jumped(Message, frozen=True, kw_only=True, tag="jumped"):
    """A replay moved along its time line: forget what came before. What was known at `to_ns` (recorder's clock) and
    the last moments before it follow at once."""

    to_ns: int


# --- the diagnosis ---------------------------------------------------------------------------------------------------

Judgement = Literal["holds", "refuted", "unknown"]


class Estimate(msgspec.Struct, frozen=True, array_like=True):
    """A figure with the band that it is believed to lie in: low <= mid <= high."""

    low: float
    mid: float
    high: float


class VerdictOn(msgspec.Struct, frozen=True):
    """What is judged of one hypothesis. `gain`: throughput with it fixed over throughput now, None when not known.

    `knob` and `value` are the knob request that fixes it in this engine, where one does.
    """

    hypothesis: str
    verdict: Judgement
    gain: Estimate | None
    evidence: list[str]
    fix: str
    knob: KnobName | None = None
    value: KnobValue | None = None


class Verdicts(Message, frozen=True, kw_only=True, tag="verdicts"):
    """The diagnosis as of now, its verdicts ranked by gain. Retained.

    expected_tokens_per_s: what these stages would give these requests, evenly split at the best depth; expected_watts:
    what each GPU (uuid) would then draw, where that is known. `why` says for each metric that is None the reason.
    `scored` tells what became of the last prediction, once its knob was turned.
    """

    headline: str
    verdicts: list[VerdictOn]
    measured_tokens_per_s: float | None = None
    expected_tokens_per_s: Estimate | None = None
    herd_index: float | None = None
    waves: float | None = None
    lock_step: float | None = None
    utilisation: float | None = None
    concurrency: float | None = None
    why: dict[str, str] = {}
    scored: str = ""
    emulated: bool = False
    expected_watts: dict[str, float] = {}


AnyMessage = (
    SessionHeader
    | Hello
    | Goodbye
    | DroppedFrames
    | EngineState
    | KnobState
    | Fault
    | LogLines
    | StageFrame
    | QueueFrame
    | GpuFrame
    | HostFrame
    | TokenFrame
    | Reply
    | SubmitRequests
    | CancelRequests
    | KnobRequest
    | KnobReply
    | LoadRequest
    | LoadState
    | ProfileRequest
    | ProfileReply
    | StopEngine
    | BenchPhase
    | BenchDone
    | Marker
    | Jumped
    | Verdicts
)

KINDS: dict[str, type[Message]] = {str(kind.__struct_config__.tag): kind for kind in get_args(AnyMessage)}
RETAINED: tuple[type[Message], ...] = (SessionHeader, EngineState, KnobState, LoadState, Fault, Verdicts)
FRAMES: tuple[type[Message], ...] = (StageFrame, QueueFrame, GpuFrame, HostFrame, LogLines)
"""Kinds that may be dropped, oldest first, for a slow reader. Nothing else ever is."""


def kind_of(message: Message | type[Message]) -> str:
    """The tag that names this message's kind on the wire."""
    return str(message.__struct_config__.tag)
