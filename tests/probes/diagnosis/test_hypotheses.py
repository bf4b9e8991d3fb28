"""Single properties of verdicts that scenarios do not pin down."""

from __future__ import annotations

import msgspec
import pytest

from engine.emulated.band import Band
from probes.diagnosis.diagnose import diagnose
from probes.diagnosis.evidence import Evidence, SlotSample, StageSpan
from probes.diagnosis.mix import mixed_gain
from probes.diagnosis.rounds import assign_slots, rounds, typical
from probes.diagnosis.steady import steady_spans
from probes.diagnosis.verdict import Fix, Verdict, ranked


def _slots(*sizes: int, stages: int = 8, count: int = 8) -> Evidence:
    return Evidence(
        source="slots",
        engine="herdscope",
        stages=stages,
        parallelism="pp",
        slots=[SlotSample(0, sizes)],
        slot_count=count,
    )


def _verdicts(evidence: Evidence) -> dict[str, str]:
    return {verdict.hypothesis: verdict.verdict for verdict in diagnose(evidence).verdicts}


@pytest.mark.parametrize(
    ("sizes", "herd", "uneven"),
    [
        ((32,), "holds", "refuted"),
        ((16, 16), "holds", "refuted"),
        ((8, 8, 8, 8), "holds", "refuted"),
        ((4,) * 8, "refuted", "refuted"),
        ((7, 5, 4, 4, 4, 4, 4), "refuted", "holds"),
        ((1,), "refuted", "refuted"),
        ((1, 1, 1), "refuted", "refuted"),
        ((2, 2, 2, 2), "refuted", "refuted"),
    ],
)
def test_slot_sizes(sizes: tuple[int, ...], herd: str, uneven: str) -> None:
    found = _verdicts(_slots(*sizes))
    assert (found["herd"], found["uneven_split"]) == (herd, uneven)


def test_one_slot_is_no_herd() -> None:
    assert _verdicts(_slots(32, count=1))["herd"] == "refuted"


def test_metrics_without_a_meaning_say_why() -> None:
    found = diagnose(_slots(1)).herd
    assert found.H is None and "two are needed" in found.why["H"]
    assert diagnose(_slots(2, 1)).herd.limits


def test_what_holds_comes_first_then_by_gain() -> None:
    fix = Fix("", "", "")

    def verdict(word: str, mid: float | None) -> Verdict:
        gain = None if mid is None else Band(mid, mid, mid)
        return Verdict(hypothesis="herd", verdict=word, gain=gain, fix=fix)  # type: ignore[arg-type]

    found = ranked([verdict("refuted", 1.0), verdict("holds", 1.1), verdict("unknown", None), verdict("holds", 2.0)])
    assert [(v.verdict, v.gain.mid if v.gain else None) for v in found] == [
        ("holds", 2.0),
        ("holds", 1.1),
        ("unknown", None),
        ("refuted", 1.0),
    ]


def test_prefill_takes_from_a_gain_and_never_adds() -> None:
    gain = mixed_gain(Band(1.8, 2.25, 2.6))
    assert (gain.low, gain.mid, gain.high) == (1.0, 1.5, 2.6)


def test_a_step_takes_the_slot_that_left_first() -> None:
    first = [(0, 2), (2, 4), (10, 12), (12, 14), (20, 22)]
    assert assign_slots(first, [8, 11, 18, 21, 28]) == [0, 1, 0, 1, 0]


def _span(step: int, slot: int, decode: int, prefill: int = 0, length: int = 10) -> StageSpan:
    start = step * 20
    times = {"wait": start, "ready": start, "start": start, "end": start + length, "sent": start + length}
    return StageSpan(stage=0, rank=0, step=step, slot=slot, decode=decode, prefill=prefill, **times)


def test_rounds_hold_every_live_slot_once() -> None:
    spans = [_span(i, i % 3, (5, 3, 2)[i % 3]) for i in range(9)]
    assert {tuple(sample.sizes) for sample in rounds(spans)} == {(5, 3, 2)}
    assert typical(rounds(spans)) == (5, 3, 2)


def test_stalls_and_prefill_are_not_steady() -> None:
    spans = [_span(i, 0, 4) for i in range(30)]
    spans[5] = _span(5, 0, 4, prefill=100)
    spans[14] = msgspec.structs.replace(_span(14, 0, 4), end=14 * 20 + 900)
    assert [span.step for span in steady_spans(spans)] == list(range(15, 30))
