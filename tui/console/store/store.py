"""The console's one store. Widgets read it and nothing else; live channels and replays fill it the same way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from sessions.herd import herd_index, waves
from sessions.messages import (
    BenchDone,
    BenchPhase,
    DroppedFrames,
    EngineState,
    Fault,
    Goodbye,
    GpuFrame,
    Hello,
    HostFrame,
    Jumped,
    KnobReply,
    KnobState,
    LoadState,
    LogLine,
    LogLines,
    Marker,
    Message,
    QueueFrame,
    SessionHeader,
    StageFrame,
    Verdicts,
)
from tui.console.store.bench import BenchBook
from tui.console.store.clocks import Clocks
from tui.console.store.events import Event, knob_changes
from tui.console.store.gpus import Gpu
from tui.console.store.lanes import Lane
from tui.console.store.outlook import Expected, VerdictLine, verdict_line
from tui.console.store.rate import Rate
from tui.console.store.series import Series

HISTORY_SAMPLES = 6000
"""Ten minutes at 10 Hz."""
LOG_LINES = 5000
EVENTS = 500


def fault_title(fault: Fault) -> str:
    """What failed, with its rank."""
    rank = f"rank {fault.rank}"
    return fault.what if fault.rank is None or fault.what.startswith(rank) else f"{rank}: {fault.what}"


class Store:
    """State of one session at `now_ns` of its clock: newest values and bounded histories.

    `epoch` is another object whenever everything is: versions count within it.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything: another session begins."""
        self.epoch = object()
        self.now_ns = 0
        self.version = 0
        self.clocks = Clocks()
        self.session: SessionHeader | None = None
        self.engine: EngineState | None = None
        self.knobs: KnobState | None = None
        self.load: LoadState | None = None
        self.fault: Fault | None = None
        self.queue: QueueFrame | None = None
        self.hosts: dict[str, HostFrame] = {}
        self.gpus: dict[str, Gpu] = {}
        self.lanes: dict[int, Lane] = {}
        self.output_rate = Rate(HISTORY_SAMPLES)
        self.prompt_rate = Rate(HISTORY_SAMPLES)
        self.running = Series(HISTORY_SAMPLES)
        self.waiting = Series(HISTORY_SAMPLES)
        self.herd = Series(HISTORY_SAMPLES)
        self.waves = Series(HISTORY_SAMPLES)
        self.log: deque[LogLine] = deque(maxlen=LOG_LINES)
        self.log_version = 0
        self.events: deque[Event] = deque(maxlen=EVENTS)
        self.events_version = 0
        self.bench = BenchBook()
        self.verdicts: Verdicts | None = None
        self.verdict: VerdictLine | None = None
        self.expected: Expected | None = None
        self.frames_lost = 0
        self._first_ns: int | None = None

    def apply(self, messages: Iterable[Message]) -> None:
        """Take messages in the order of their arrival; kinds that no widget shows are skipped."""
        for message in messages:
            handler = HANDLERS.get(type(message))
            if handler is not None:
                if self._first_ns is None and not isinstance(message, Hello):
                    self._first_ns = self._at(message)
                handler(self, message)
                self.version += 1

    def advance(self, now_ns: int) -> None:
        """Move the store's present to `now_ns` of the session's clock."""
        self.now_ns = now_ns

    def exchange(self, other: Store) -> None:
        """Trade everything with another store, so that the widgets of this one show what the other held."""
        self.__dict__, other.__dict__ = other.__dict__, self.__dict__

    @property
    def kinds(self) -> list[type[Message]]:
        """Kinds of messages that the store makes use of."""
        return list(HANDLERS)

    @property
    def emulated(self) -> bool:
        """Whether any figure here comes from the emulated cluster."""
        engine, session = self.engine, self.session
        return bool((engine and engine.emulated) or (session and session.emulated))

    @property
    def began_ns(self) -> int:
        """Where the session's time line begins."""
        if self.session is not None:
            return self._at(self.session)
        return self._first_ns or 0

    def note(self, category: Any, text: str) -> None:
        """Put a line of the console's own into the event log, at the present."""
        self._event(self.now_ns, category, text)

    def ranked_lanes(self) -> list[Lane]:
        """Lanes by stage, then rank."""
        return sorted(self.lanes.values(), key=lambda lane: (lane.stage, lane.rank))

    def sorted_gpus(self) -> list[Gpu]:
        """GPUs by host, then index."""
        return sorted(self.gpus.values(), key=lambda gpu: (gpu.frame.source.split("/")[0], gpu.frame.index))

    # --- handlers ----------------------------------------------------------------------------------------------

    def _at(self, message: Message) -> int:
        return message.t_ns + self.clocks.offset_ns(message.source)

    def _event(self, t_ns: int, category: Any, text: str) -> None:
        self.events.append(Event(t_ns, category, text))
        self.events_version += 1

    def _session_header(self, message: SessionHeader) -> None:
        self.clocks.anchor(message)
        if self.session is None or self.session.source == message.source:
            self.session = message

    def _hello(self, message: Hello) -> None:
        self.clocks.anchor(message)

    def _jumped(self, message: Jumped) -> None:
        """A replay moved: what follows tells everything anew, on the same clocks."""
        clocks = self.clocks
        self.reset()
        self.clocks = clocks

    def _verdicts(self, message: Verdicts) -> None:
        self.verdicts = message
        self.verdict = verdict_line(message)
        expected = message.expected_tokens_per_s
        watts = {
            self.gpus[uuid].frame.index: watts for uuid, watts in message.expected_watts.items() if uuid in self.gpus
        }
        self.expected = Expected(expected.low, expected.mid, expected.high, watts) if expected is not None else None

    def _goodbye(self, message: Goodbye) -> None:
        """Readings of who left are no longer of now."""
        self.hosts = {name: frame for name, frame in self.hosts.items() if frame.source != message.peer}
        self.gpus = {uuid: gpu for uuid, gpu in self.gpus.items() if gpu.frame.source != message.peer}
        if not message.expected:
            self._event(self._at(message), "fault", f"{message.peer} is gone: {message.reason}")

    def _dropped_frames(self, message: DroppedFrames) -> None:
        self.frames_lost += message.count

    def _engine_state(self, message: EngineState) -> None:
        before = self.engine
        if before is not None and message.model is None and not message.ranks:
            # An engine that fails no longer says what it was.
            message = msgspec.structs.replace(message, model=before.model, ranks=before.ranks, stages=before.stages)
        self.engine = message
        if message.phase == "ready":
            self.fault = None
        if before is None or before.phase != message.phase:
            detail = f": {message.detail}" if message.detail else ""
            self._event(self._at(message), "engine", f"engine {message.phase}{detail}")
        alive = {rank.rank for rank in message.ranks}
        if alive:
            self.lanes = {rank: lane for rank, lane in self.lanes.items() if rank in alive}

    def _knob_state(self, message: KnobState) -> None:
        if self.knobs is not None:
            for line in knob_changes(self.knobs.knobs, message.knobs):
                self._event(self._at(message), "knob", line)
        self.knobs = message

    def _knob_reply(self, message: KnobReply) -> None:
        if not message.ok:
            self._event(self._at(message), "refused", f"{message.knob}: {message.reason}")
        elif message.took_ms >= 1 or message.preempted:
            cost = f"{message.knob} took {message.took_ms:.0f} ms, {message.preempted} requests recomputed"
            self._event(self._at(message), "knob", cost)

    def _fault(self, message: Fault) -> None:
        self.fault = message
        self._event(self._at(message), "fault", f"{fault_title(message)}: {message.cause}")

    def _log_lines(self, message: LogLines) -> None:
        offset = self.clocks.offset_ns(message.source)
        self.log.extend(LogLine(line.t_ns + offset, line.rank, line.text) for line in message.lines)
        self.log_version += 1

    def _stage_frame(self, message: StageFrame) -> None:
        lane = self.lanes.get(message.rank)
        if lane is None or lane.stage != message.stage:
            lane = self.lanes[message.rank] = Lane(message.stage, message.rank)
        lane.extend(message, self.clocks.offset_ns(message.source))

    def _queue_frame(self, message: QueueFrame) -> None:
        t_ns = self._at(message)
        before, self.queue = self.queue, message
        self.output_rate.observe(t_ns, message.output_tokens_total)
        self.prompt_rate.observe(t_ns, message.prompt_tokens_total)
        self.running.append(t_ns, message.running)
        self.waiting.append(t_ns, message.waiting)
        self._herd(t_ns, before, message)

    @property
    def stages(self) -> int:
        """Pipeline stages of the engine; 1 while nothing is known."""
        return self.engine.stages if self.engine is not None else 1

    def _herd(self, t_ns: int, before: QueueFrame | None, message: QueueFrame) -> None:
        """Means over the scheduling instants since the frame before; from the slots now where nobody summed them."""
        if message.herd_samples == 0:
            sizes = [slot.decode for slot in message.slots]
            for series, metric in ((self.herd, herd_index(sizes, self.stages)), (self.waves, waves(sizes))):
                if metric.value is not None:
                    series.append(t_ns, metric.value)
        elif before is not None and (samples := message.herd_samples - before.herd_samples) > 0:
            self.herd.append(t_ns, (message.herd_index_sum - before.herd_index_sum) / samples)
            self.waves.append(t_ns, (message.waves_sum - before.waves_sum) / samples)

    def _gpu_frame(self, message: GpuFrame) -> None:
        t_ns = self._at(message)
        gpu = self.gpus.get(message.uuid)
        if gpu is None:
            gpu = self.gpus[message.uuid] = Gpu(message, t_ns)
        gpu.update(message, t_ns)

    def _host_frame(self, message: HostFrame) -> None:
        self.hosts[message.host] = message

    def _load_state(self, message: LoadState) -> None:
        before = self.load
        self.load = message
        if before is None or (before.concurrency, before.rate) != (message.concurrency, message.rate):
            self._event(self._at(message), "load", f"load: {message.description}")

    def _bench_phase(self, message: BenchPhase) -> None:
        self.bench.phase(message)
        if message.phase in ("start", "failed"):
            self._event(self._at(message), "bench", f"bench {message.run} {message.phase} {message.detail}".rstrip())
        elif message.point is not None:
            rate = message.point.output_tokens_per_s
            self._event(self._at(message), "bench", f"bench C={message.point.concurrency}: {rate:.1f} tok/s")

    def _bench_done(self, message: BenchDone) -> None:
        self.bench.done(message)
        self._event(self._at(message), "bench", f"bench {message.run} done")

    def _marker(self, message: Marker) -> None:
        if message.category != "knob":  # the knob state that changed says it already
            self._event(self._at(message), message.category, message.text)


HANDLERS: dict[type[Message], Callable[[Store, Any], None]] = {
    SessionHeader: Store._session_header,
    Hello: Store._hello,
    Goodbye: Store._goodbye,
    DroppedFrames: Store._dropped_frames,
    EngineState: Store._engine_state,
    KnobState: Store._knob_state,
    KnobReply: Store._knob_reply,
    Fault: Store._fault,
    LogLines: Store._log_lines,
    StageFrame: Store._stage_frame,
    QueueFrame: Store._queue_frame,
    GpuFrame: Store._gpu_frame,
    HostFrame: Store._host_frame,
    LoadState: Store._load_state,
    BenchPhase: Store._bench_phase,
    BenchDone: Store._bench_done,
    Marker: Store._marker,
    Jumped: Store._jumped,
    Verdicts: Store._verdicts,
}
