"""How fast virtual time passes: ten simulated minutes of a pipeline of eight under 64 requests."""

from __future__ import annotations

import time

import pytest

from engine.config import EngineConfig
from engine.emulated.executor import SECOND_NS
from engine.emulated.target import VirtualTarget
from sessions.knobs import Knobs
from sessions.load.lengths import Lengths
from sessions.load.workload import LoadPoint, Workload
from sessions.messages import TokenFrame

SIMULATED_S = 600
TARGET_S = 10.0


@pytest.mark.benchmark
@pytest.mark.parametrize("telemetry", [True, False])
def test_ten_minutes_of_pp8_at_c64(telemetry: bool) -> None:
    knobs = Knobs(async_depth=8, admission="rebalance", cuda_graphs=True)
    target = VirtualTarget(
        EngineConfig(model="kimi-k2.6", emulate="8x-rtx-pro-6000", pp=8, knobs=knobs, telemetry=telemetry)
    )
    assert target.engine.model is not None
    load = Workload(prompt_tokens=Lengths(128, 128), output_tokens=Lengths(128, 128)).endless(
        LoadPoint(concurrency=64), "speed", target.engine.model.vocab, 0
    )
    started, cpu_started = time.perf_counter(), time.process_time()
    tokens = 0
    while target.clock.now_ns() < SIMULATED_S * SECOND_NS:
        batch = load.due(target.clock.now_ns())
        if batch:
            assert target.submit([due.request for due in batch]) == ""
        for message in target.advance(target.clock.now_ns() + SECOND_NS):
            if isinstance(message, TokenFrame):
                tokens += sum(len(event.tokens) for event in message.events)
                for end in message.finished:
                    load.finished(end.request, message.t_ns)
    took, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    print(
        f"\n{SIMULATED_S} s simulated in {took:.1f} s, {cpu:.1f} s of CPU (target {TARGET_S:.0f} s), "
        f"telemetry {'on' if telemetry else 'off'}: {tokens / SIMULATED_S:.0f} tok/s emulated"
    )
    assert tokens > 0
