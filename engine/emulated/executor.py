"""The emulated cluster as an executor: micro-batches pass through a max-plus pipeline of roofline stage times."""

from __future__ import annotations

import os
import socket
from collections import deque

from engine.config import ConfigError, EngineConfig
from engine.emulated.clock import WaitingClock, WallClock
from engine.emulated.cluster import MAX_KV_BLOCKS, Cluster, cluster_of, kv_blocks, shortage_bytes
from engine.emulated.meter import Lap, Meter, gpu_uuid, watts_above_idle
from engine.emulated.pipeline import Pipeline
from engine.emulated.roofline import Roofline, Work
from engine.emulated.tokens import sequence_key, token_at
from engine.executor import Capabilities
from engine.plan import MicroBatchPlan, MicroBatchResult
from sessions.knobs import KnobError, KnobName, Knobs
from sessions.messages import GpuFrame, ModelInfo, RankInfo, StageFrame

SECOND_NS = 1_000_000_000
_LAPS_KEPT = 50_000
ONE_GPU = "one GPU has nothing to shard: emulate several, such as 8x-h200"


class EmulatedExecutor:
    """Implements engine.executor.Executor. In wall time (the default clock) it behaves as a live engine; with a
    VirtualClock `collect` moves the time on to the next result.

    A result comes a hop after the last stage's end, as its token reaches the first stage. A step of a slot that the
    driver submits ahead starts then; one that it submits on seeing the result starts `host_us` later.
    """

    def __init__(self, config: EngineConfig, clock: WaitingClock | None = None, cluster: Cluster | None = None) -> None:
        """`cluster` stands in for the one that the configuration names. Raise ConfigError."""
        self._config = config
        self._clock = clock if clock is not None else WallClock()
        self._cluster = cluster if cluster is not None else cluster_of(config)
        self._knobs = config.knobs
        self._host_ns = round(self._cluster.hardware.host_us * 1000)
        self._build(self._cluster.roofline(self._knobs.parallelism))

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def clock(self) -> WaitingClock:
        """The clock that results, spans and GPU frames are stamped with."""
        return self._clock

    def submit(self, plan: MicroBatchPlan) -> None:
        for row in plan.admit:
            self._keys[row.row] = sequence_key(row.seed, row.tokens[0] if row.tokens else 0)
        lap = self._lap(_work(plan))
        passages = self._pipeline.push(self._ready_ns(plan), lap.taus_ns, lap.hops_ns)
        if self._config.telemetry:
            self._meter.note(plan, passages, lap)
        back_ns = int(passages[-1].end) + lap.feedback_ns
        self._results.append(
            MicroBatchResult(step=plan.step, slot=plan.slot, tokens=self._sample(plan, back_ns), t_ns=back_ns)
        )

    def collect(self, timeout_s: float) -> list[MicroBatchResult]:
        deadline = self._clock.now_ns() + max(0, round(timeout_s * SECOND_NS))
        self._clock.wait_until(min(deadline, self._results[0].t_ns) if self._results else deadline)
        now_ns = self._clock.now_ns()
        done = []
        while self._results and self._results[0].t_ns <= now_ns:
            done.append(self._results.popleft())
        return done

    def wake(self) -> None:
        self._clock.wake()

    def spans(self) -> list[StageFrame]:
        return self._meter.frames(self._clock.now_ns())

    def gpu_frames(self) -> list[GpuFrame]:
        """Emulated GPU frames since the last call, marked as such; the caller sets `source`."""
        return self._meter.gpu_frames(self._clock.now_ns(), self._memory)

    def apply(self, knobs: Knobs) -> Knobs:
        if knobs.parallelism != self._knobs.parallelism:
            if self._cluster.pp == self._cluster.ep == 1:
                raise KnobError(f"parallelism: {ONE_GPU}")
            try:
                roofline = self._cluster.roofline(knobs.parallelism)
            except ConfigError as error:
                raise KnobError(f"parallelism: {error}") from None
            self._clock.pass_until(self._clock.now_ns() + round(self._cluster.switch_s() * SECOND_NS))
            self._build(roofline)
        self._knobs = knobs
        return knobs

    def profile(self, folder: str) -> None:
        raise KnobError("profile: the emulated cluster runs no kernels to profile; its stage spans are exact")

    def end_profile(self, timeout_s: float) -> list[str]:
        return []

    def close(self) -> None:
        self._results.clear()

    def _build(self, roofline: Roofline) -> None:
        now_ns = self._clock.now_ns()
        self._roofline = roofline
        self._pipeline = Pipeline(roofline.stages, now_ns)
        self._meter = Meter(self._cluster.hardware, roofline.stages, roofline.ranks, now_ns)
        self._results: deque[MicroBatchResult] = deque()
        self._laps: dict[tuple[Work, bool], Lap] = {}
        self._keys: dict[int, int] = {}
        self._token_ns: dict[int, int] = {}
        self._capabilities = _capabilities(self._config, self._cluster, roofline)
        self._memory = _memory_used(roofline, self._capabilities)

    def _lap(self, work: Work) -> Lap:
        """What a micro-batch costs; those of the same kind share the answer."""
        key = (work, self._knobs.cuda_graphs)
        found = self._laps.get(key)
        if found is None:
            if len(self._laps) >= _LAPS_KEPT:
                self._laps.clear()
            roofline = self._roofline
            times = roofline.stage_times(*key)
            hops = [roofline.hop_s(s, s + 1, work.decode + work.prefill) for s in range(roofline.stages - 1)]
            found = self._laps[key] = Lap(
                times=times,
                taus_ns=tuple(round(time.stage * SECOND_NS) for time in times),
                hops_ns=tuple(round(hop * SECOND_NS) for hop in hops),
                feedback_ns=round(roofline.feedback_s(work.sampled) * SECOND_NS),
                watts=tuple(w for time in times for w in watts_above_idle(roofline.hardware, time)),
            )
        return found

    def _ready_ns(self, plan: MicroBatchPlan) -> int:
        """When stage 0 can start: the plan is there, and so are the tokens that its decode rows run."""
        plan_ns = self._clock.now_ns() + self._host_ns
        return max(plan_ns, max((self._token_ns[d.row] for d in plan.decode), default=0))

    def _sample(self, plan: MicroBatchPlan, back_ns: int) -> list[int]:
        """The micro-batch's tokens, which are at the first stage at `back_ns`."""
        vocab = self._cluster.model.vocab
        tokens = []
        for decode in plan.decode:
            self._token_ns[decode.row] = back_ns
            tokens.append(token_at(self._keys[decode.row], decode.position + 1, vocab))
        for chunk in plan.prefill:
            if chunk.last:
                self._token_ns[chunk.row] = back_ns
                tokens.append(token_at(self._keys[chunk.row], chunk.start + chunk.length, vocab))
        return tokens


def _work(plan: MicroBatchPlan) -> Work:
    cached = attended = sum(d.position for d in plan.decode) + len(plan.decode)
    prefill = sampled = 0
    for chunk in plan.prefill:
        prefill += chunk.length
        sampled += chunk.last
        cached += chunk.start + chunk.length
        attended += chunk.length * chunk.start + chunk.length * (chunk.length + 1) // 2
    return Work(len(plan.decode), prefill, _rounded(cached), _rounded(attended), len(plan.decode) + sampled)


def _rounded(count: int) -> int:
    """`count` to 7 significant bits, so that neighbouring steps share their (cached) stage times."""
    step = 1 << max(0, count.bit_length() - 7)
    return (count + step // 2) // step * step


def _memory_used(roofline: Roofline, capabilities: Capabilities) -> list[float]:
    """Bytes in use on each rank: the weights and the cache, which servers reserve whole at start."""
    tokens = capabilities.kv_blocks * capabilities.block_size
    stages = [r // roofline.ranks_per_stage for r in range(roofline.ranks)]
    return [roofline.weights_bytes(stage) + tokens * roofline.cache_bytes(stage) for stage in stages]


def _capabilities(config: EngineConfig, cluster: Cluster, roofline: Roofline) -> Capabilities:
    model = cluster.model
    short = shortage_bytes(roofline, config)
    label = cluster.hardware.label
    if short:
        label += f" (as if it fitted: each GPU lacks {short / 1e9:.0f} GB for the weights)"
    return Capabilities(
        model=ModelInfo(
            name=model.name,
            architecture=model.architecture,
            layers=model.layers,
            hidden=model.hidden,
            experts=model.experts,
            experts_per_token=model.top_k,
            vocab=model.vocab,
            dtype=model.dtype,
            load_format="dummy",
            parameters=model.parameters,
        ),
        ranks=_ranks(roofline),
        stages=roofline.stages,
        kv_blocks=kv_blocks(roofline, config) or MAX_KV_BLOCKS,
        block_size=config.block_size,
        max_context=min(config.max_context or model.max_context, model.max_context),
        eos=[],
        device="emulated",
        unavailable=_unavailable(cluster),
        max_run_ahead=0,  # as the servers that are emulated: under a pipeline they wait for the tokens
        emulated=True,
        hardware=label,
    )


def _unavailable(cluster: Cluster) -> dict[KnobName, str]:
    if cluster.pp == cluster.ep == 1:
        return {"parallelism": ONE_GPU}
    return {}


def _ranks(roofline: Roofline) -> list[RankInfo]:
    host = socket.gethostname()
    ranks = []
    for rank in range(roofline.ranks):
        stage = rank // roofline.ranks_per_stage
        first, last = roofline.bounds(stage)
        ranks.append(
            RankInfo(
                rank=rank,
                stage=stage,
                first_layer=first,
                last_layer=last,
                device=f"emulated:{rank}",
                host=host,
                pid=os.getpid(),
                gpu_uuid=gpu_uuid(roofline.hardware, rank),
            )
        )
    return ranks
