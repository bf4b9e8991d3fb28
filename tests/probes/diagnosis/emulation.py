"""Runs an emulated engine in virtual time and hands its messages to the diagnosis."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from engine.config import EngineConfig
from engine.emulated import roofline
from engine.emulated.cluster import Cluster
from engine.emulated.hardware import load_hardware
from engine.emulated.model_profile import load_model
from engine.emulated.roofline import Split
from engine.emulated.target import VirtualTarget
from probes.diagnosis.diagnose import Diagnosis, diagnose
from probes.diagnosis.from_messages import evidence_from_messages, gather
from sessions.knobs import KnobName, Knobs, KnobValue
from sessions.messages import Message, RequestSpec, StageFrame

SECOND_NS = 1_000_000_000


class Setup(NamedTuple):
    """An emulated deployment and its load: requests arrive in `bursts`, `gap_s` apart, and decode on and on."""

    bursts: tuple[int, ...]
    knobs: Knobs
    hardware: str = "8x-rtx-pro-6000"
    model: str = "kimi-k2.6"
    ranks: int = 8
    split: Split = "balanced"
    changes: dict[str, float] = {}
    skew: float = 0.0
    run_ahead: int = 0
    gap_s: float = 0.002
    even_experts: bool = False

    def cluster(self) -> Cluster:
        hardware = msgspec.structs.replace(load_hardware(self.hardware), **self.changes)
        model = msgspec.structs.replace(load_model(self.model), routing_skew=self.skew)
        return Cluster(hardware=hardware, model=model, pp=self.ranks, ep=self.ranks, split=self.split)


class Run(NamedTuple):
    """What was measured after the warm-up."""

    tokens_per_s: float
    messages: list[Message]

    def diagnosis(self) -> Diagnosis:
        return diagnose(evidence_from_messages(gather(self.messages)))


def run(setup: Setup, warm_up_s: float = 0.8, seconds: float = 1.2) -> Run:
    """Measure `seconds` of steady decode of one setup."""
    with _evenly_placed(setup.even_experts):
        return _run(setup, warm_up_s, seconds)


@contextlib.contextmanager
def _evenly_placed(even: bool) -> Iterator[None]:
    """Experts placed so that every rank has the mean load: what a balancer would do."""
    if not even:
        yield
        return
    placed = roofline.busiest_rank_experts, roofline.rank_experts

    def mean(experts: int, top_k: int, tokens: int, skew: float, ranks: int) -> float:
        return sum(placed[1](experts, top_k, tokens, skew, ranks)) / ranks

    roofline.busiest_rank_experts = mean
    roofline.rank_experts = lambda e, k, t, s, n: (mean(e, k, t, s, n),) * n
    try:
        yield
    finally:
        roofline.busiest_rank_experts, roofline.rank_experts = placed


def _run(setup: Setup, warm_up_s: float, seconds: float) -> Run:
    target = _started(setup)
    _advance(target, warm_up_s)
    heard: list[Message] = [target.engine, target.knobs]
    heard += _advance(target, seconds)
    target.close()
    return Run(_rate(heard), heard)


def _started(setup: Setup) -> VirtualTarget:
    """The deployment with all its requests sent."""
    config = EngineConfig(
        model=setup.model,
        emulate=setup.hardware,
        pp=setup.ranks,
        ep=setup.ranks,
        knobs=setup.knobs,
        run_ahead=setup.run_ahead,
    )
    target = VirtualTarget(config, setup.cluster())
    number = 0
    for size in setup.bursts:
        target.submit(_requests(number, size))
        number += size
        _advance(target, setup.gap_s)
    return target


def turned(setup: Setup, knob: KnobName, value: KnobValue, seconds: float = 3.0) -> list[Message]:
    """Everything heard of a session in which one knob is turned half way."""
    target = _started(setup)
    heard: list[Message] = [target.engine, target.knobs, *_advance(target, seconds)]
    heard.append(target.turn(knob, value))
    heard += _advance(target, seconds)
    target.close()
    return heard


def _rate(heard: Sequence[Message]) -> float:
    """Tokens a second by the last stage's spans, from the end of the first round to that of the last."""
    frames = [message for message in heard if isinstance(message, StageFrame)]
    last = max(frame.stage for frame in frames)
    first_rank = min(frame.rank for frame in frames if frame.stage == last)
    spans = sorted(
        (frame.t_ns + span.sent, span.slot, span.decode)
        for frame in frames
        if frame.stage == last and frame.rank == first_rank
        for span in frame.spans
    )
    slot = spans[0][1]
    rounds = [i for i, span in enumerate(spans) if span[1] == slot]
    made = sum(decode for _, _, decode in spans[rounds[0] + 1 : rounds[-1] + 1])
    return made / ((spans[rounds[-1]][0] - spans[rounds[0]][0]) / SECOND_NS)


def _advance(target: VirtualTarget, seconds: float) -> Sequence[Message]:
    until = target.clock.now_ns() + round(seconds * SECOND_NS)
    heard: list[Message] = []
    while target.clock.now_ns() < until:
        heard += target.advance(until)
    return heard


def _requests(first: int, count: int) -> list[RequestSpec]:
    return [
        RequestSpec(id=f"r{first + i}", prompt=[1 + i % 50] * 8, max_tokens=20_000, seed=first + i, ignore_eos=True)
        for i in range(count)
    ]
