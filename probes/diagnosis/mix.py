"""Throughput when prefill is in the mix: replays know decode alone.

On the busiest stage a token costs its decode (1 / R, R the replayed decode rate) and P seconds of prefill: at most
X = 1 / (1 / R + P). A micro-batch with prefill takes several times as long as the others and holds them up, which
costs up to HELD_UP times more; how much, no replay of decode times can tell, so it spans the band.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from engine.emulated.band import Band
from probes.diagnosis.evidence import Evidence, StageSpan

_OFTEN = 0.02
"""Share of micro-batches with prefill from which on it is in the mix."""
HELD_UP = 2.5
"""Emulated closed loops with prompts of 32-256 and outputs of 16-128 tokens reach 0.4 to 1 of X."""


def prefill_in_the_mix(evidence: Evidence) -> bool:
    """Whether the measured throughput includes a noticeable amount of prefill."""
    prefills = sum(1 for span in evidence.spans if span.prefill)
    return evidence.tokens_per_s is not None and prefills > _OFTEN * len(evidence.spans)


def rate_beside_prefill(decode: Band, evidence: Evidence) -> Band:
    """Tokens a second with the time of the prefill that comes with them, which holds nothing else up: X."""
    prefill_s = _prefill_s_per_token(evidence)
    return decode.map(lambda rate: 1.0 / (1.0 / rate + prefill_s))


def mixed_rate(decode: Band, evidence: Evidence) -> Band:
    """Tokens a second with the prefill that comes with them, which holds others up."""
    rates = rate_beside_prefill(decode, evidence)
    return Band(rates.low / HELD_UP, rates.mid / math.sqrt(HELD_UP), rates.high)


def mixed_gain(gain: Band) -> Band:
    """What is left of a decode gain: between nothing and all of it."""
    return Band(min(1.0, gain.low), math.sqrt(max(1.0, gain.mid)), max(1.0, gain.high))


def _prefill_s_per_token(evidence: Evidence) -> float:
    """Seconds of prefill on the busiest stage for each output token."""
    if not evidence.tokens_per_s:
        return 0.0
    seconds = (max(span.end for span in evidence.spans) - min(span.start for span in evidence.spans)) / 1e9
    busiest = max(_prefill_s(evidence.spans).values(), default=0.0)
    return busiest / (evidence.tokens_per_s * seconds) if seconds > 0 else 0.0


def _prefill_s(spans: Sequence[StageSpan]) -> dict[tuple[int, int], float]:
    found: dict[tuple[int, int], float] = defaultdict(float)
    for span in spans:
        if span.prefill:
            found[span.stage, span.rank] += (span.end - span.start) / 1e9
    return found
