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


class _Passed(NamedTuple):
    slot: int
    step: int
    decode: int
    prefill_tokens: int
    passage: Passage
    time: StageTime


class _Draw(NamedTuple):
    """A rank draws `watts` above idle in [start, end)."""

    start: int
    end: int
    watts: float


def gpu_uuid(hardware: Hardware, rank: int) -> str:
    """The name of an emulated GPU."""
    return f"EMULATED-{hardware.name}-{rank}"


class Meter:
    """Notes every micro-batch when it is submitted, tells of it once the clock has passed it."""

    def __init__(self, hardware: Hardware, stages: int, ranks: int, now_ns: int) -> None:
        self._hardware = hardware
        self._ranks_per_stage = ranks // stages
        self._passed: list[deque[_Passed]] = [deque() for _ in range(stages)]
        self._draws: list[deque[_Draw]] = [deque() for _ in range(ranks)]
        self._joules = [0.0] * ranks
        self._told_ns = now_ns
        self._drawn_ns = now_ns

    def note(self, plan: MicroBatchPlan, passages: Sequence[Passage], times: Sequence[StageTime]) -> None:
        """A micro-batch goes through all stages as `passages` say (ns)."""
        decode, prefill = len(plan.decode), plan.prefill_tokens
        for stage, (passage, time) in enumerate(zip(passages, times, strict=True)):
            self._passed[stage].append(_Passed(plan.slot, plan.step, decode, prefill, passage, time))
            for i, own in enumerate(time.own):
                rank = stage * self._ranks_per_stage + i
                self._draws[rank].append(_Draw(int(passage.start), int(passage.end), self._watts(time, own)))

    def frames(self, now_ns: int) -> list[StageFrame]:
        """Spans that ended since the last call, one frame a rank."""
        frames = []
        for stage, passed in enumerate(self._passed):
            done = []
            while passed and passed[0].passage.end <= now_ns:
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
        for rank, draws in enumerate(self._draws):
            above, busy_ns = _drain(draws, self._drawn_ns, now_ns)
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
        return frames

    def _frame(self, stage: int, rank_of_stage: int, done: Sequence[_Passed], now_ns: int) -> StageFrame:
        return StageFrame(
            source="",
            t_ns=now_ns,
            stage=stage,
            rank=stage * self._ranks_per_stage + rank_of_stage,
            window_ns=now_ns - self._told_ns,
            spans=[_span(passed, rank_of_stage, now_ns) for passed in done],
        )

    def _watts(self, time: StageTime, own: float) -> float:
        """Mean watts above idle while a micro-batch holds the stage: decode watts while the rank itself works, more
        up to the cap as that work nears the compute roof."""
        hardware = self._hardware
        working = hardware.decode_watts - hardware.idle_watts
        working += (hardware.limit_watts - hardware.decode_watts) * time.compute_share
        return working * min(1.0, own / time.stage)


_NOT_EMULATED = (
    "sm_clock_hertz",
    "memory_clock_hertz",
    "temperature_celsius",
    "pcie_rx_bytes_per_second",
    "pcie_tx_bytes_per_second",
)


def _span(passed: _Passed, rank_of_stage: int, now_ns: int) -> Span:
    """A rank's span. Where ranks share a stage `end` is its own work's; until `sent` it reduces and waits."""
    passage, time = passed.passage, passed.time
    free, start, sent = int(passage.free), int(passage.start), int(passage.end)
    end = sent
    if len(time.own) > 1:
        end = max(start, sent - round((time.gpu - time.own[rank_of_stage]) * 1e9))
    return Span(
        slot=passed.slot,
        step=passed.step,
        decode=passed.decode,
        prefill_tokens=passed.prefill_tokens,
        wait=free - now_ns,
        ready=start - now_ns,
        start=start - now_ns,
        end=end - now_ns,
        sent=sent - now_ns,
        launch_ns=round(time.launch * 1e9),
        graph=time.replayed,
    )


def _drain(draws: deque[_Draw], since_ns: int, now_ns: int) -> tuple[float, int]:
    """Joules above idle and busy ns within [since, now); what ended by `now` is forgotten."""
    joules, busy = 0.0, 0
    for draw in draws:
        if draw.start >= now_ns:
            break
        inside = min(draw.end, now_ns) - max(draw.start, since_ns)
        if inside > 0:
            joules += draw.watts * inside / 1e9
            busy += inside
    while draws and draws[0].end <= now_ns:
        draws.popleft()
    return joules, busy
