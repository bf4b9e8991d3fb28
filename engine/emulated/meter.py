"""What the emulated ranks did: spans for the stage frames, energy for the GPU frames."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from engine.emulated.hardware import Hardware
from engine.emulated.pipeline import Passage
from engine.emulated.roofline import StageTime
from engine.plan import MicroBatchPlan
from sessions.messages import GpuFrame, Span, StageFrame


class Lap(NamedTuple):
    """What a micro-batch of one kind costs, in ns: on every stage, from each to the next, and back to the first.

    watts: what each rank draws above idle while the micro-batch holds its stage.
    """

    times: tuple[StageTime, ...]
    taus_ns: tuple[int, ...]
    hops_ns: tuple[int, ...]
    feedback_ns: int
    watts: tuple[float, ...]


class _Passed(NamedTuple):
    slot: int
    step: int
    decode: int
    prefill_tokens: int
    passages: list[Passage]
    lap: Lap


def gpu_uuid(hardware: Hardware, rank: int) -> str:
    """The name of an emulated GPU."""
    return f"EMULATED-{hardware.name}-{rank}"


class Meter:
    """Notes every micro-batch when it is submitted, tells of it once the clock has passed it."""

    def __init__(self, hardware: Hardware, stages: int, ranks: int, now_ns: int) -> None:
        self._hardware = hardware
        self._ranks_per_stage = ranks // stages
        self._passed: list[deque[_Passed]] = [deque() for _ in range(stages)]
        self._drawing: list[deque[_Passed]] = [deque() for _ in range(stages)]
        self._joules = [0.0] * ranks
        self._told_ns = now_ns
        self._drawn_ns = now_ns

    def note(self, plan: MicroBatchPlan, passages: list[Passage], lap: Lap) -> None:
        """A micro-batch goes through all stages as `passages` say (ns)."""
        passed = _Passed(plan.slot, plan.step, len(plan.decode), plan.prefill_tokens, passages, lap)
        for queue in self._passed:
            queue.append(passed)
        for queue in self._drawing:
            queue.append(passed)

    def frames(self, now_ns: int) -> list[StageFrame]:
        """Spans that ended since the last call, one frame a rank."""
        frames = []
        for stage, passed in enumerate(self._passed):
            done = []
            while passed and passed[0].passages[stage].end <= now_ns:
                done.append(passed.popleft())
            if not done:
                continue
            frames += [self._frame(stage, i, done, now_ns) for i in range(self._ranks_per_stage)]
        self._told_ns = now_ns
        return frames

    def gpu_frames(self, now_ns: int, memory_used: Sequence[float]) -> list[GpuFrame]:
        """Each GPU since the last call: mean watts, energy so far, the share of time in which it worked."""
        seconds = (now_ns - self._drawn_ns) / 1e9
        frames = []
        hardware = self._hardware
        for rank in range(len(self._joules)):
            above, busy_ns = self._above_idle(rank, now_ns)
            joules = above + hardware.idle_watts * seconds
            self._joules[rank] += joules
            frames.append(
                GpuFrame(
                    source="",
                    t_ns=now_ns,
                    index=rank,
                    uuid=gpu_uuid(hardware, rank),
                    name=f"EMULATED {hardware.title}",
                    power_watts=joules / seconds if seconds > 0 else hardware.idle_watts,
                    power_limit_watts=hardware.limit_watts,
                    energy_joules_total=self._joules[rank],
                    memory_used_bytes=round(memory_used[rank]),
                    memory_total_bytes=round(hardware.memory_bytes),
                    utilization_ratio=min(1.0, busy_ns / 1e9 / seconds) if seconds > 0 else 0.0,
                    unavailable=dict.fromkeys(_NOT_EMULATED, "not emulated"),
                    emulated=True,
                )
            )
        self._drawn_ns = now_ns
        for stage, queue in enumerate(self._drawing):
            while queue and queue[0].passages[stage].end <= now_ns:
                queue.popleft()
        return frames

    def _above_idle(self, rank: int, now_ns: int) -> tuple[float, int]:
        """Joules above idle and busy ns of a rank since the last GPU frames."""
        stage = rank // self._ranks_per_stage
        joules, busy = 0.0, 0
        for passed in self._drawing[stage]:
            passage = passed.passages[stage]
            if passage.start >= now_ns:
                break
            inside = int(min(passage.end, now_ns) - max(passage.start, self._drawn_ns))
            if inside > 0:
                joules += passed.lap.watts[rank] * inside / 1e9
                busy += inside
        return joules, busy

    def _frame(self, stage: int, rank_of_stage: int, done: Sequence[_Passed], now_ns: int) -> StageFrame:
        return StageFrame(
            source="",
            t_ns=now_ns,
            stage=stage,
            rank=stage * self._ranks_per_stage + rank_of_stage,
            window_ns=now_ns - self._told_ns,
            spans=[_span(passed, stage, rank_of_stage, now_ns) for passed in done],
        )


def watts_above_idle(hardware: Hardware, time: StageTime) -> tuple[float, ...]:
    """Mean watts above idle of each of a stage's ranks while a micro-batch holds it: decode watts while the rank itself
    works, more up to the cap as that work nears the compute roof."""
    working = hardware.decode_watts - hardware.idle_watts
    working += (hardware.limit_watts - hardware.decode_watts) * time.compute_share
    return tuple(working * min(1.0, own / time.stage) for own in time.own)


_NOT_EMULATED = (
    "sm_clock_hertz",
    "memory_clock_hertz",
    "temperature_celsius",
    "pcie_rx_bytes_per_second",
    "pcie_tx_bytes_per_second",
)


def _span(passed: _Passed, stage: int, rank_of_stage: int, now_ns: int) -> Span:
    """A rank's span. Where ranks share a stage `end` is its own work's; until `sent` it reduces and waits."""
    free, _, began, done = passed.passages[stage]
    time = passed.lap.times[stage]
    start, sent = int(began) - now_ns, int(done) - now_ns
    end = sent
    if len(time.own) > 1:
        end = max(start, sent - round((time.gpu - time.own[rank_of_stage]) * 1e9))
    wait, launch_ns = int(free) - now_ns, round(time.launch * 1e9)
    return Span(
        passed.slot,
        passed.step,
        passed.decode,
        passed.prefill_tokens,
        wait,
        start,  # the input was there: a stage that is free starts at once
        start,
        end,
        sent,
        launch_ns,
        time.replayed,
    )
