"""What prefill costs the expected throughput, also where there is too little of it to change a verdict."""

from __future__ import annotations

import pytest

from probes.diagnosis.diagnose import diagnose
from probes.diagnosis.evidence import Evidence, SlotSample, StageSpan
from probes.diagnosis.mix import prefill_in_the_mix

MS = 1_000_000


def test_a_seldom_long_prefill_is_part_of_what_is_expected() -> None:
    """One stage, 32 requests, decode steps of 13.6 ms and after each 64 of them a prefill of 60 ms."""
    spans, now, tokens = [], 0, 0
    for step in range(400):
        prefill = 1024 if step % 65 == 64 else 0
        took = 60 * MS if prefill else int(13.6 * MS)
        tokens += 0 if prefill else 32
        spans.append(
            StageSpan(
                stage=0, rank=0, step=step, slot=0, decode=0 if prefill else 32, prefill=prefill, wait=now, ready=now,
                start=now, end=now + took, sent=now + took, graph=True, compute=took,
            )
        )  # fmt: skip
        now += took
    rate = tokens / (now / 1e9)
    evidence = Evidence(
        source="spans", engine="herdscope", stages=1, parallelism="pp", window=now, spans=spans, slot_count=1,
        slots=[SlotSample(t_ns=at * 100 * MS, sizes=(32,)) for at in range(now // (100 * MS))],
        tokens_per_s=rate,
        graphs=True,
    )  # fmt: skip
    assert not prefill_in_the_mix(evidence)
    found = diagnose(evidence)
    assert not found.causes
    assert found.expected_tokens_per_s is not None
    assert found.expected_tokens_per_s.mid == pytest.approx(rate, rel=0.01)
    assert found.expected_tokens_per_s.low < rate < found.expected_tokens_per_s.high
