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
    memory = []
    for number, (at_ns, batch) in enumerate(session(TICKS)):
        before = time.process_time()
        for message in batch:
            writer.write(at_ns, message)
        writer.commit()
        writing += time.process_time() - before
        messages += len(batch)
        spans += 8 * 20
        if number in (TICKS // 10, TICKS):
            memory.append(peak_mb())
    writer.close("done")
    seconds = TICKS / 10
    size = path.stat().st_size
    print(f"\n{messages} messages, {spans} spans, {seconds:.0f} s: {size / 1e6:.1f} MB on disk")
    print(f"writer: {writing / seconds:.2%} of a core at the real rate; memory {memory[0]:.0f} -> {memory[-1]:.0f} MB")

    before = time.perf_counter()
    recording = Recording(path)
    first, last = recording.extent()
    recording.seek(last)
    opened = time.perf_counter() - before
    draw = random.Random(0)
    seeks = []
    for _ in range(SEEKS):
        t_ns = draw.randrange(first, last)
        before = time.perf_counter()
        moment = recording.seek(t_ns)
        seeks.append(time.perf_counter() - before)
        assert moment.state or moment.records
    seeks.sort()
    print(f"open and show the end {opened * 1e3:.1f} ms")
    print(f"seek p50 {seeks[SEEKS // 2] * 1e3:.1f} ms  p99 {seeks[int(SEEKS * 0.99)] * 1e3:.1f} ms")
    recording.close()
    assert size > 0
