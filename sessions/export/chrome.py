"""Chrome trace events (JSON): opens in ui.perfetto.dev and chrome://tracing.

One process a rank, with lanes for computing, input wait, launch gap and sending; arrows follow a micro-batch over the
stages; counters for GPU power, queues and slots; marks as instants over everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from sessions.export.errors import ExportError
from sessions.messages import GpuFrame, Message, QueueFrame, Span, StageFrame
from sessions.recording.reader import Recording

Event = dict[str, Any]

COMPUTE, WAIT, LAUNCH, SEND = 1, 2, 3, 4
_LANES = {COMPUTE: "compute", WAIT: "input wait", LAUNCH: "launch gap", SEND: "send"}
QUEUES_PID = 100_000
GPUS_PID = 200_000
MARKS_PID = 300_000
_FRAMES: list[type[Message]] = [StageFrame, QueueFrame, GpuFrame]


def write_chrome_trace(recording: Recording, path: Path, start_ns: int | None = None, end_ns: int | None = None) -> int:
    """Write the trace of an interval (arrivals; default: all); return the number of events. Raise ExportError."""
    encoder = msgspec.json.Encoder()
    count = 0
    try:
        with path.open("wb") as file:
            file.write(b'{"displayTimeUnit":"ns","otherData":')
            file.write(encoder.encode(_about(recording)))
            file.write(b',"traceEvents":[')
            for event in trace_events(recording, start_ns, end_ns):
                file.write((b",\n" if count else b"\n") + encoder.encode(event))
                count += 1
            file.write(b"\n]}\n")
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error.strerror}") from None
    return count


def trace_events(recording: Recording, start_ns: int | None = None, end_ns: int | None = None) -> Iterator[Event]:
    """Every event of the trace; `ts` and `dur` are microseconds from the recording's first instant."""
    zero = recording.extent()[0]
    maker = _Maker(zero)
    for record in recording.records(start_ns, end_ns, _FRAMES):
        match record.message:
            case StageFrame() as stage:
                yield from maker.stage(stage)
            case QueueFrame() as queue:
                yield from maker.queue(queue)
            case GpuFrame() as gpu:
                yield from maker.gpu(gpu)
    for mark in recording.marks(start_ns, end_ns):
        yield from maker.named(MARKS_PID, "marks")
        yield {
            "ph": "i", "s": "g", "name": mark.text, "cat": mark.category,
            "pid": MARKS_PID, "tid": 0, "ts": (mark.t_ns - zero) / 1e3,
        }  # fmt: skip


class _Maker:
    """Turns frames into events; remembers which processes and lanes have their name."""

    def __init__(self, zero_ns: int) -> None:
        self._zero_ns = zero_ns
        self._named: set[tuple[int, int]] = set()
        self._flows: set[int] = set()

    def named(self, pid: int, name: str, order: int = 0) -> Iterator[Event]:
        """Metadata of a process, once."""
        if (pid, 0) not in self._named:
            self._named.add((pid, 0))
            yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": name}}
            yield {
                "ph": "M",
                "name": "process_sort_index",
                "pid": pid,
                "tid": 0,
                "ts": 0,
                "args": {"sort_index": order},
            }

    def stage(self, frame: StageFrame) -> Iterator[Event]:
        """The spans of one rank."""
        yield from self.named(frame.rank, f"stage {frame.stage} (rank {frame.rank})", frame.rank)
        for lane, name in _LANES.items():
            if (frame.rank, lane) not in self._named:
                self._named.add((frame.rank, lane))
                yield {
                    "ph": "M",
                    "name": "thread_name",
                    "pid": frame.rank,
                    "tid": lane,
                    "ts": 0,
                    "args": {"name": name},
                }
        for span in frame.spans:
            yield from self._span(frame, span)

    def _span(self, frame: StageFrame, span: Span) -> Iterator[Event]:
        name = f"slot {span.slot}"
        arguments = {
            "step": span.step, "slot": span.slot, "decode": span.decode, "prefill_tokens": span.prefill_tokens,
            "graph": span.graph, "launch_us": span.launch_ns / 1e3,
        }  # fmt: skip
        lanes = (
            (WAIT, span.wait, span.ready),
            (LAUNCH, span.ready, span.start),
            (COMPUTE, span.start, span.end),
            (SEND, span.end, span.sent),
        )
        for lane, begin, end in lanes:
            if end > begin:
                yield {
                    "ph": "X", "name": name, "cat": _LANES[lane], "pid": frame.rank, "tid": lane,
                    "ts": self._us(frame.t_ns + begin), "dur": (end - begin) / 1e3, "args": arguments,
                }  # fmt: skip
        phase = "t" if span.step in self._flows else "s"
        self._flows.add(span.step)
        yield {
            "ph": phase, "name": "micro-batch", "cat": "flow", "id": span.step, "pid": frame.rank, "tid": COMPUTE,
            "ts": self._us(frame.t_ns + span.start),
        }  # fmt: skip

    def queue(self, frame: QueueFrame) -> Iterator[Event]:
        """Requests waiting and running, and the size of every slot."""
        yield from self.named(QUEUES_PID, "queues", QUEUES_PID)
        yield self._counter(QUEUES_PID, "requests", frame.t_ns, {"running": frame.running, "waiting": frame.waiting})
        sizes = {f"slot {number}": slot.decode + slot.prefill for number, slot in enumerate(frame.slots)}
        if sizes:
            yield self._counter(QUEUES_PID, "slots", frame.t_ns, sizes)

    def gpu(self, frame: GpuFrame) -> Iterator[Event]:
        """Watts of a GPU."""
        if frame.power_watts is None:
            return
        yield from self.named(GPUS_PID, "GPUs", GPUS_PID)
        yield self._counter(GPUS_PID, f"GPU {frame.index} power", frame.t_ns, {"watts": frame.power_watts})

    def _counter(self, pid: int, name: str, t_ns: int, values: dict[str, Any]) -> Event:
        return {"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": self._us(t_ns), "args": values}

    def _us(self, t_ns: int) -> float:
        return (t_ns - self._zero_ns) / 1e3


def _about(recording: Recording) -> dict[str, Any]:
    engine = recording.engine
    return {
        "tool": "herdscope",
        "recording": recording.path.name,
        "host": recording.origin.host,
        "started_utc_ns": recording.utc_ns(recording.extent()[0]),
        "model": engine.model.name if engine.model is not None else "",
        "emulated": engine.emulated,
    }
