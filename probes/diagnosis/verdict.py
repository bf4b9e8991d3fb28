"""What a hypothesis is judged to be."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.emulated.band import Band
from sessions.knobs import KnobName, KnobValue
from sessions.messages import Judgement

Hypothesis = Literal[
    "interconnect",
    "launch_overhead",
    "shallow_depth",
    "herd",
    "uneven_split",
    "stage_imbalance",
    "expert_imbalance",
    "host",
]

NAMES: dict[Hypothesis, str] = {
    "interconnect": "interconnect",
    "launch_overhead": "launch overhead",
    "shallow_depth": "depth too small",
    "herd": "thundering herd",
    "uneven_split": "uneven split",
    "stage_imbalance": "stage imbalance",
    "expert_imbalance": "expert imbalance",
    "host": "framework / host",
}


class Fix(msgspec.Struct, frozen=True):
    """How to change it: the knob in this engine, the flag or request for others; empty where there is none."""

    herdscope: str
    sglang: str
    vllm: str

    def for_engine(self, engine: str) -> str:
        """The fix for one engine, or all of them where the engine is another."""
        if engine in ("herdscope", "sglang", "vllm"):
            return str(getattr(self, engine))
        return f"Herdscope: {self.herdscope} | SGLang: {self.sglang} | vLLM: {self.vllm}"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One hypothesis. gain: throughput with that one thing fixed over throughput now; None when it cannot be told.

    supports and contradicts hold one line of evidence each; missing says what would settle an unknown one. knob and
    value are the knob request that fixes it in this engine, where one does.
    """

    hypothesis: Hypothesis
    verdict: Judgement
    gain: Band | None
    supports: list[str] = []
    contradicts: list[str] = []
    missing: str = ""
    fix: Fix
    knob: KnobName | None = None
    value: KnobValue | None = None

    @property
    def name(self) -> str:
        """The hypothesis in words."""
        return NAMES[self.hypothesis]


def refuted_gain(gain: Band | None) -> Band:
    """The gain of a refuted hypothesis: nothing, and at most what the replay says."""
    return Band(1.0, 1.0, max(1.0, gain.high if gain else 1.0))


def ranked(verdicts: list[Verdict]) -> list[Verdict]:
    """What holds first, then by gain; what cannot be told comes before what is refuted."""
    order = {"holds": 0, "unknown": 1, "refuted": 2}
    return sorted(verdicts, key=lambda v: (order[v.verdict], -(v.gain.mid if v.gain else 1.0)))
