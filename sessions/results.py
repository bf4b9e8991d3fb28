"""The result of a benchmark run, as `herdscope bench --json` prints it and `herdscope compare` reads it."""

from __future__ import annotations

import msgspec

from sessions.knobs import Knobs

RESULT_FORMAT = 1


class Percentiles(msgspec.Struct, frozen=True):
    """Percentiles of one metric, in the unit its field name ends with; None when nothing was measured."""

    p50: float | None
    p90: float | None
    p99: float | None
    mean: float | None = None


class RequestCounts(msgspec.Struct, frozen=True):
    """How the requests of one point ended; their sum is what was submitted."""

    finished: int
    cancelled: int
    refused: int
    failed: int = 0


class GpuConditions(msgspec.Struct, frozen=True, kw_only=True):
    """What held for one GPU during the measured window: mean clock, highest temperature, and the reasons that the
    driver gave for holding its clocks down (idleness apart)."""

    index: int
    name: str
    sm_clock_hertz: float | None = None
    temperature_celsius: float | None = None
    throttled: list[str] = []


class BenchPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One concurrency (or arrival rate) of a run.

    output_tokens_per_s counts output tokens over the measured window; tokens_per_s_per_stream is that over
    concurrency; scaling_efficiency is that stream rate over the one at C=1 (None without C=1 in the sweep). TTFT is
    submission to first token; ITL each gap between a stream's tokens; TPOT (last - first token) / (tokens - 1) a
    request; e2e submission to last token. herd_index (H) and waves (N_eff) are means over scheduling instants of the
    slots' decode requests; occupancy is each stage's computing share of the window; power is mean watts a GPU.
    `load` names the point: C=16, 3/s, trace. Under open arrivals (rate_per_s) concurrency is the most requests that
    were live at once. samples holds each metric once a repetition; repetitions is its output_tokens_per_s.
    outputs_digest is the SHA-256 of all output tokens in order of request: two runs with the same one produced the
    same tokens.
    """

    concurrency: int
    output_tokens_per_s: float
    tokens_per_s_per_stream: float
    scaling_efficiency: float | None
    ttft_ms: Percentiles
    itl_ms: Percentiles
    tpot_ms: Percentiles
    e2e_ms: Percentiles
    herd_index: float | None
    waves: float | None
    occupancy: list[float]
    queue_depth: float
    power_w: list[float | None] | None
    energy_j_per_token: float | None
    requests: RequestCounts
    duration_s: float
    repetitions: list[float] = []
    preempted: int = 0
    rate_per_s: float | None = None
    samples: dict[str, list[float]] = {}
    outputs_digest: str = ""
    load: str = ""
    gpus: list[GpuConditions] = []
    why: dict[str, str] = {}


class EngineSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured."""

    model: str
    architecture: str
    load_format: str
    dtype: str
    pp: int
    ep: int
    device: str
    layers: list[list[int]]
    kv_blocks: int
    block_size: int


class WorkloadSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for; two runs compare when their `key` is the same. requests_per_point is 0 where the number
    follows the concurrency: requests_per_stream then says how many a stream."""

    key: str
    arrivals: str
    prompt_tokens: str
    output_tokens: str
    requests_per_point: int
    concurrencies: list[int]
    seed: int
    requests_per_stream: int = 0
    rates_per_s: list[float] = []


class MachineSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Where it was measured."""

    host: str
    cpu: str
    cores: int
    memory_bytes: int
    gpus: list[str]
    driver: str | None = None


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    """One benchmark run. A result that another `tool` measured names in `definitions`, by metric, where its definition
    differs from BenchPoint's."""

    format: int = RESULT_FORMAT
    run: str
    started_utc: str
    points: list[BenchPoint]
    knobs: Knobs
    engine: EngineSummary
    workload: WorkloadSummary
    machine: MachineSummary
    versions: dict[str, str]
    emulated: bool
    label: str = ""
    tool: str = "herdscope"
    definitions: dict[str, str] = {}
