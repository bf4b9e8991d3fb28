"""An hour of a busy 8-GPU pipeline: how large its file is, what writing costs, how quickly it opens and seeks."""

from __future__ import annotations

import os
import random
import resource
import time
from pathlib import Path

import pytest

from sessions.recording import meta
from sessions.recording.reader import Recording
from sessions.recording.writer import RecordingWriter
from tests.sessions.recording.synthetic import session

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1200)]

TICKS = int(os.environ.get("HERDSCOPE_BENCH_TICKS", "36000"))
SEEKS = 500


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def test_one_hour_of_eight_gpus(tmp_path: Path) -> None:
    path = tmp_path / "hour.herd"
    writer = RecordingWriter(path, meta.origin([]))
    messages = spans = 0
    writing = 0.0
    minutes: list[float] = []
    memory = []
    for number, (at_ns, batch) in enumerate(session(TICKS)):
        before = time.process_time()
        for message in batch:
            writer.write(at_ns, message)
        writer.commit()
        writing += time.process_time() - before
        messages += len(batch)
        spans += 8 * 20
        if number % 600 == 0 and number:
            minutes.append(writing)
            writing = 0.0
        if number in (TICKS // 10, TICKS):
            memory.append(peak_mb())
    writer.close("done")
    seconds = TICKS / 10
    size = path.stat().st_size
    print(f"\n{messages} messages, {spans} spans, {seconds:.0f} s: {size / 1e6:.1f} MB on disk")
    minutes.sort()
    print(
        f"writer: {minutes[len(minutes) // 2] / 60:.2%} of a core at the real rate (median minute; least "
        f"{minutes[0] / 60:.2%}); memory {memory[0]:.0f} -> {memory[-1]:.0f} MB"
    )

    before = time.perf_counter()
    recording = Recording(path)
    first, last = recording.extent()
    recording.seek(last)
    opened = time.perf_counter() - before
    draw = random.Random(0)
    seeks, cpu = [], []
    for _ in range(SEEKS):
        t_ns = draw.randrange(first, last)
        before, cpu_before = time.perf_counter(), time.process_time()
        moment = recording.seek(t_ns)
        seeks.append(time.perf_counter() - before)
        cpu.append(time.process_time() - cpu_before)
        assert moment.state or moment.records
    seeks.sort()
    print(f"open and show the end {opened * 1e3:.1f} ms")
    cpu.sort()
    for name, values in (("seek", seeks), ("seek, CPU time", cpu)):
        print(f"{name}: p50 {values[SEEKS // 2] * 1e3:.1f} ms  p99 {values[int(SEEKS * 0.99)] * 1e3:.1f} ms")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    recording.close()
    assert size > 0
