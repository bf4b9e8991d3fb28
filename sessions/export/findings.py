"""What a report says about a recording: one pass over it, plain figures out."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sessions.energy import EnergyCounter
from sessions.messages import BenchDone, GpuFrame, Message, Span, StageFrame
from sessions.recording import meta
from sessions.recording.markers import Mark
from sessions.recording.reader import Recording
from sessions.recording.rollups import Rollup
from sessions.results import BenchResult

LANES_NS = 60_000_000
"""How much of the time line the swimlane picture shows."""
MAX_CHART_POINTS = 600
_FRAMES: list[type[Message]] = [StageFrame, GpuFrame, BenchDone]


class StageFigures(msgspec.Struct, kw_only=True):
    """One rank over the interval. Times are means a micro-batch in ms; occupancy is the computing share (0..1)."""

    rank: int
    stage: int
    micro_batches: int = 0
    occupancy: float = 0.0
    compute_ms: float = 0.0
    wait_ms: float = 0.0
    launch_gap_ms: float = 0.0
    send_ms: float = 0.0
    decode: float = 0.0


class GpuFigures(msgspec.Struct, kw_only=True):
    """One GPU over the interval; None where nothing was measured."""

    source: str
    index: int
    name: str
    emulated: bool
    mean_watts: float | None = None
    max_watts: float | None = None
    limit_watts: float | None = None
    energy_joules: float | None = None


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """Spans of one stage in a short stretch: (start, end, slot, step, decode), ns from the stretch's start."""

    stage: int
    spans: list[tuple[int, int, int, int, int]]


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report shows."""

    name: str
    origin: meta.Origin
    engine: meta.Engine
    notes: meta.Notes
    started_utc_ns: int
    start_ns: int
    seconds: float
    messages: int
    rollups: list[Rollup]
    marks: list[Mark]
    stages: list[StageFigures]
    gpus: list[GpuFigures]
    lanes: list[Lane]
    benches: list[BenchResult]
    problems: list[str]

    def mean(self, field: str) -> float | None:
        """The mean over the seconds of one rollup field; None when it was never measured."""
        values = [value for rollup in self.rollups if (value := getattr(rollup, field)) is not None]
        return sum(values) / len(values) if values else None


def findings(recording: Recording, start_ns: int | None = None, end_ns: int | None = None) -> Findings:
    """Read the interval (arrivals; default: all); raise RecordingError."""
    first, last = recording.extent()
    start, end = (first if start_ns is None else start_ns), (last if end_ns is None else end_ns)
    collector = _Collector((start + end) // 2)
    for record in recording.records(start, end, _FRAMES):
        collector.take(record.message)
    return Findings(
        name=recording.path.name,
        origin=recording.origin,
        engine=recording.engine,
        notes=recording.notes,
        started_utc_ns=recording.utc_ns(start),
        start_ns=start,
        seconds=(end - start) / 1e9,
        messages=recording.count(),
        rollups=_thinned(recording.rollups(start // 10**9 * 10**9, end)),
        marks=recording.marks(start, end),
        stages=collector.stages(),
        gpus=collector.gpus(),
        lanes=collector.lanes(),
        benches=collector.benches,
        problems=recording.problems,
    )


class _Collector:
    """Sums over frames; keeps the spans of one short stretch in the middle for the picture."""

    def __init__(self, middle_ns: int) -> None:
        self._middle_ns = middle_ns
        self._stages: dict[int, StageFigures] = {}
        self._windows: dict[int, int] = {}
        self._gpus: dict[tuple[str, int], GpuFigures] = {}
        self._watts: dict[tuple[str, int], list[float]] = {}
        self._energy: dict[tuple[str, int], EnergyCounter] = {}
        self._extent_ns: dict[tuple[str, int], tuple[int, int]] = {}
        self._lanes: dict[int, list[tuple[int, int, int, int, int]]] = {}
        self.benches: list[BenchResult] = []

    def take(self, message: Message) -> None:
        match message:
            case StageFrame():
                self._stage(message)
            case GpuFrame():
                self._gpu(message)
            case BenchDone():
                self.benches.append(message.result)

    def _stage(self, frame: StageFrame) -> None:
        figures = self._stages.setdefault(frame.rank, StageFigures(rank=frame.rank, stage=frame.stage))
        self._windows[frame.rank] = self._windows.get(frame.rank, 0) + frame.window_ns
        for span in frame.spans:
            figures.micro_batches += 1
            figures.compute_ms += (span.end - span.start) / 1e6
            figures.wait_ms += (span.ready - span.wait) / 1e6
            figures.launch_gap_ms += (span.start - span.ready) / 1e6
            figures.send_ms += (span.sent - span.end) / 1e6
            figures.decode += span.decode
            self._show(frame, span)

    def _show(self, frame: StageFrame, span: Span) -> None:
        begin = frame.t_ns + span.start - self._middle_ns
        end = frame.t_ns + span.end - self._middle_ns
        if end > 0 and begin < LANES_NS:
            lane = self._lanes.setdefault(frame.stage, [])
            lane.append((max(0, begin), min(LANES_NS, end), span.slot, span.step, span.decode))

    def _gpu(self, frame: GpuFrame) -> None:
        key = (frame.source, frame.index)
        if key not in self._gpus:
            self._gpus[key] = GpuFigures(
                source=frame.source, index=frame.index, name=frame.name, emulated=frame.emulated
            )
            self._watts[key] = [0.0, 0.0, 0.0]
            self._energy[key] = EnergyCounter()
            self._extent_ns[key] = (frame.t_ns, frame.t_ns)
        self._extent_ns[key] = (self._extent_ns[key][0], frame.t_ns)
        self._gpus[key].limit_watts = frame.power_limit_watts
        if frame.power_watts is not None:
            total, count, most = self._watts[key]
            self._watts[key] = [total + frame.power_watts, count + 1, max(most, frame.power_watts)]
        if frame.energy_joules_total is not None:
            self._energy[key].add(frame.t_ns, frame.energy_joules_total)

    def stages(self) -> list[StageFigures]:
        """Ranks in order, sums turned into means."""
        for rank, figures in self._stages.items():
            if self._windows[rank]:
                figures.occupancy = min(1.0, figures.compute_ms * 1e6 / self._windows[rank])
            count = max(1, figures.micro_batches)
            for field in ("compute_ms", "wait_ms", "launch_gap_ms", "send_ms", "decode"):
                setattr(figures, field, getattr(figures, field) / count)
        return [self._stages[rank] for rank in sorted(self._stages)]

    def gpus(self) -> list[GpuFigures]:
        """GPUs in order."""
        for key, (total, count, most) in self._watts.items():
            gpu = self._gpus[key]
            if count:
                gpu.mean_watts, gpu.max_watts = total / count, most
            counted = self._energy[key].watts()
            watts = gpu.mean_watts if counted is None else counted
            if watts is not None:
                first, last = self._extent_ns[key]
                gpu.energy_joules = watts * (last - first) / 1e9
        return [self._gpus[key] for key in sorted(self._gpus)]

    def lanes(self) -> list[Lane]:
        """The stretch's spans by stage."""
        return [Lane(stage=stage, spans=sorted(self._lanes[stage])) for stage in sorted(self._lanes)]


def _thinned(rollups: Sequence[Rollup]) -> list[Rollup]:
    """At most MAX_CHART_POINTS seconds: means of neighbours, so that nothing is left out of an average."""
    group = -(-len(rollups) // MAX_CHART_POINTS)
    return (
        [_mean(rollups[index : index + group]) for index in range(0, len(rollups), group)]
        if group > 1
        else list(rollups)
    )


def _mean(rollups: Sequence[Rollup]) -> Rollup:
    means: dict[str, float | None] = {}
    for field in Rollup.__struct_fields__[1:]:
        values = [value for rollup in rollups if (value := getattr(rollup, field)) is not None]
        means[field] = sum(values) / len(values) if values else None
    return Rollup(rollups[0].t_ns, **means)
