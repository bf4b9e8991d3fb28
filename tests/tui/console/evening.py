"""A session in which everything happens that a screen tells of. Its time is made up."""

from __future__ import annotations

import msgspec

from sessions.knobs import Knobs
from sessions.messages import (
    BenchDone,
    BenchPhase,
    EngineState,
    Fault,
    GpuFrame,
    HostFrame,
    KnobReply,
    KnobState,
    LogLine,
    LogLines,
    Marker,
    Message,
)
from tests.tui.console.feed import MS, SOURCE, Feed, balanced, herd
from tests.tui.console.results import run_a, run_b
from tests.tui.console.verdicts import VERDICTS

S = 1000 * MS
START_NS = 1_000 * MS
"""Soon after boot: the recorder does not believe a time that the machine has not reached yet."""
TURNED_S, FAULT_S, END_S = 12, 76, 80


def evening() -> list[tuple[int, list[Message]]]:
    """(time, messages) of every tick: a herd, the knob that ends it, a verdict, a benchmark, log lines, a fault."""
    first = herd(start_ns=START_NS)
    ticks = [(START_NS, first.opening()), *first.frames(TURNED_S)]
    second = balanced(start_ns=START_NS + TURNED_S * S)
    second.tokens = first.tokens
    ticks += second.frames(END_S - TURNED_S)
    said: dict[int, list[Message]] = {}
    for message in _happenings(second):
        said.setdefault(message.t_ns, []).append(message)
    survive = (GpuFrame, HostFrame)
    fault_ns = START_NS + FAULT_S * S
    return [
        (at, said.get(at, []) + [message for message in messages if at < fault_ns or isinstance(message, survive)])
        for at, messages in ticks
    ]


def _happenings(spread: Feed) -> list[Message]:
    def at(seconds: float) -> dict[str, object]:
        return {"source": SOURCE, "t_ns": START_NS + round(seconds * 10) * 100 * MS}

    knobs = spread.knobs or Knobs()
    before, after = run_a(), run_b()
    log = [LogLine(START_NS + 25 * S + i * MS, i % 3 or None, f"warning: step {i} took long") for i in range(40)]
    last = ["step 41", "torch.OutOfMemoryError: tried to allocate 2.00 GiB"]
    broken = LogLine(START_NS + FAULT_S * S, 2, last[1])
    loading = EngineState(**at(FAULT_S), phase="failed", detail="a worker died")  # type: ignore[arg-type]
    return [
        msgspec.structs.replace(VERDICTS, t_ns=START_NS + 7 * S),
        KnobReply(**at(TURNED_S), id="1", to="c", ok=True, knob="admission", applied="rebalance", took_ms=2.0),  # type: ignore[arg-type]
        KnobState(**at(TURNED_S), knobs=knobs, unavailable={}, token_budget=8192),  # type: ignore[arg-type]
        Marker(**at(TURNED_S + 1), category="verdict", text="the herd is gone"),  # type: ignore[arg-type]
        msgspec.structs.replace(
            VERDICTS, t_ns=START_NS + 20 * S, headline="nothing holds", verdicts=VERDICTS.verdicts[1:], scored="kept"
        ),
        LogLines(**at(25), lines=log),  # type: ignore[arg-type]
        BenchPhase(**at(28), run=before.run, phase="start", progress=0.0, detail="C=4,16"),  # type: ignore[arg-type]
        BenchDone(**at(30), run=before.run, result=before),  # type: ignore[arg-type]
        BenchPhase(**at(36), run=after.run, phase="start", progress=0.0),  # type: ignore[arg-type]
        BenchPhase(**at(38), run=after.run, phase="measure", progress=0.2, concurrency=4),  # type: ignore[arg-type]
        BenchPhase(**at(41), run=after.run, phase="point", progress=0.5, concurrency=4, point=after.points[0]),  # type: ignore[arg-type]
        BenchPhase(**at(42), run=after.run, phase="measure", progress=0.7, concurrency=16),  # type: ignore[arg-type]
        BenchDone(**at(50), run=after.run, result=after),  # type: ignore[arg-type]
        KnobReply(**at(55), id="2", to="c", ok=False, reason="switching already", knob="parallelism", applied="pp"),  # type: ignore[arg-type]
        LogLines(**at(FAULT_S), lines=[broken]),  # type: ignore[arg-type]
        loading,
        Fault(**at(FAULT_S), what="worker died", cause="killed by signal 9", rank=2, signal="SIGKILL", last_log=last),  # type: ignore[arg-type]
    ]
