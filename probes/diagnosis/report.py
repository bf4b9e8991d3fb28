"""A diagnosis as plain data (for --json) and as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from engine.emulated.band import Band
from probes.diagnosis.diagnose import Diagnosis
from probes.diagnosis.evidence import StageSpan
from probes.diagnosis.score import Score
from probes.diagnosis.verdict import Verdict

_PARTS = ("compute", "wire", "launch_gap", "comm_wait", "host", "bubble")
_SOURCES = {
    "spans": "stage spans",
    "recording": "a recording",
    "traces": "traces",
    "slots": "slot sizes only",
    "tokens": "client token times only",
}
_MARKS = {"holds": "HOLDS", "refuted": "refuted", "unknown": "unknown"}


def as_data(diagnosis: Diagnosis, scores: Sequence[Score] = ()) -> dict[str, Any]:
    """Plain dicts and lists. Decompositions are fractions that sum to 1; gains are factors of throughput."""
    evidence = diagnosis.evidence
    communication = evidence.communication
    return {
        "source": evidence.source,
        "engine": evidence.engine,
        "emulated": evidence.emulated,
        "parallelism": evidence.parallelism,
        "stages": evidence.stages,
        "window_ms": evidence.window / 1e6,
        "ranks": [
            {
                "rank": rank.rank,
                "stage": rank.stage,
                "label": rank.label,
                "decomposition": {part: getattr(rank.decomposition, part) for part in _PARTS},
                "gpu_us": None
                if rank.breakdown is None
                else {name: getattr(rank.breakdown, name) / 1e3 for name in rank.breakdown.__struct_fields__},
            }
            for rank in evidence.ranks
        ],
        "herd": {
            name: getattr(diagnosis.herd, name)
            for name in ("H", "waves", "L", "U", "B", "concurrency", "random_line", "why", "limits")
        },
        "micro_batches": _micro_batches(evidence.spans),
        "cohorts": list(diagnosis.cohorts),
        "verdicts": [_verdict(verdict, evidence.engine) for verdict in diagnosis.verdicts],
        "throughput": {
            "measured": diagnosis.measured_tokens_per_s,
            "expected": _band(diagnosis.expected_tokens_per_s),
            "replayed": _band(diagnosis.replayed_tokens_per_s),
        },
        "overlap": evidence.overlap,
        "bubble": None
        if diagnosis.bubble is None
        else {name: getattr(diagnosis.bubble, name) for name in diagnosis.bubble.__struct_fields__},
        "communication": None
        if communication is None
        else {
            "kernel_ms": communication.kernel_s * 1e3,
            "waiting": communication.waiting,
            "operations": communication.operations,
        },
        "alignment_residual_us": None if evidence.residual_ns is None else evidence.residual_ns / 1e3,
        "predictions": [
            {"knob": score.knob, "predicted": _band(score.predicted), "got": score.got, "kept": score.kept}
            for score in scores
        ],
        "missing_ranks": evidence.missing_ranks,
        "cannot_see": evidence.cannot_see,
        "notes": notes(diagnosis),
    }


def as_text(diagnosis: Diagnosis, scores: Sequence[Score] = ()) -> str:
    """Some forty lines: where the time went, how the requests move, what holds, what would help."""
    return "\n".join(_lines(diagnosis, scores))


def headline(diagnosis: Diagnosis) -> str:
    """The diagnosis in one line."""
    causes = diagnosis.causes
    if not causes:
        unknown = [v.name for v in diagnosis.verdicts if v.verdict == "unknown"]
        return f"nothing found; not known: {', '.join(unknown)}" if unknown else "nothing found: it runs as it should"
    first = causes[0]
    text = f"{first.name}{_gain_text(first.gain)}"
    rest = [f"{v.name}{_gain_text(v.gain)}" for v in causes[1:]]
    return f"{text}; then {', '.join(rest)}" if rest else text


def notes(diagnosis: Diagnosis) -> list[str]:
    """What a reader must know about the evidence."""
    evidence = diagnosis.evidence
    found = list(evidence.notes)
    profiler = evidence.profiler
    if profiler is not None and evidence.ranks:
        rest = 1.0 - min(rank.decomposition.compute for rank in evidence.ranks)
        idle = max(r.decomposition.launch_gap + r.decomposition.host for r in evidence.ranks)
        if profiler.with_stack:
            found.append(
                f"profiled with Python stacks on, which slows the host many times over: of the {rest:.1%} without "
                f"computing, up to {idle:.1%} are the host's (launching and scheduling) and the profiler's; record "
                "with stacks off to see the server as it is"
            )
        elif idle > 0.05:
            found.append(f"up to {idle:.1%} of the time is the host's, lengthened by the profiler that recorded it")
        if profiler.overhead > 0.001:
            found.append(f"the profiler names {profiler.overhead:.1%} of the time as its own")
        if profiler.stalled > 0.01:
            found.append(
                f"{profiler.stalled:.1%} of the time went into steps over five times as long as the median one"
            )
    return found


def _lines(diagnosis: Diagnosis, scores: Sequence[Score]) -> Iterator[str]:
    evidence = diagnosis.evidence
    emulated = "EMULATED  " if evidence.emulated else ""
    where = {"pp": f"{evidence.stages} pipeline stages", "ep": "expert parallel", "unknown": "layout not told"}
    engine = evidence.engine if evidence.engine != "torch" else "plain torch"
    length = f", {evidence.window / 1e6:.1f} ms" if evidence.window else ""
    yield f"{emulated}{engine}, {where[evidence.parallelism]}, from {_SOURCES[evidence.source]}{length}"
    if evidence.residual_ns is not None:
        how = "by the ranks' communication" if evidence.source == "traces" else "with the driver's"
        yield f"clocks aligned {how}, residual {evidence.residual_ns / 1e3:.1f} us"
    for note in notes(diagnosis):
        yield f"note: {note}"
    yield ""
    yield headline(diagnosis)
    if evidence.ranks:
        yield ""
        yield "rank  stage  compute    wire  launch gap  comm wait    host  bubble"
        for rank in evidence.ranks:
            d = rank.decomposition
            yield (
                f"{rank.rank:4d}  {rank.stage:5d}  {d.compute:7.1%}  {d.wire:6.1%}  {d.launch_gap:10.1%}  "
                f"{d.comm_wait:9.1%}  {d.host:6.1%}  {d.bubble:6.1%}"
            )
    yield from _waiting(diagnosis)
    yield from _pipeline(diagnosis)
    yield ""
    yield "verdict  gain             hypothesis"
    for verdict in diagnosis.verdicts:
        yield from _verdict_lines(verdict, evidence.engine)
    for score in scores:
        yield f"last prediction: {score}"
    if evidence.cannot_see:
        yield ""
        yield f"this source cannot see: {'; '.join(evidence.cannot_see)}"


def _waiting(diagnosis: Diagnosis) -> Iterator[str]:
    communication = diagnosis.evidence.communication
    if communication is not None:
        share = "" if communication.waiting is None else f": {communication.waiting:.1%} waiting, the rest transfer"
        yield f"communication kernels ran {communication.kernel_s * 1e3:.1f} ms in all{share}"


def _pipeline(diagnosis: Diagnosis) -> Iterator[str]:
    batches = _micro_batches(diagnosis.evidence.spans)
    if batches:
        yield ""
        yield "stage  micro-batches  decode requests  median ms"
        for stage in batches:
            yield (
                f"{stage['stage']:5d}  {stage['count']:13d}  {stage['decode_median']!s:>15}  {stage['median_ms']:9.2f}"
            )
    herd = diagnosis.herd
    names = {"H": "herd index H", "waves": "waves", "L": "lock-step L", "U": "utilisation U", "B": "burst B"}
    yield ""
    for name, words in names.items():
        value = getattr(herd, name)
        shown = f"{value:.2f}" if value is not None else f"n/a ({herd.why.get(name, 'not measured')})"
        yield f"{words:14s} {shown}"
    if diagnosis.cohorts:
        yield f"{'go round':14s} {'+'.join(map(str, diagnosis.cohorts))} requests"
    bubble = diagnosis.bubble
    if bubble is not None:
        yield f"{'bubble':14s} {bubble.total:.0%}: {bubble.herd:.0%} herd, {bubble.too_few:.0%} too few micro-batches"
    expected = diagnosis.expected_tokens_per_s
    if diagnosis.measured_tokens_per_s is not None and expected is not None:
        yield (
            f"{'throughput':14s} {diagnosis.measured_tokens_per_s:.1f} tok/s measured, "
            f"{expected.mid:.1f} ({expected.low:.1f}-{expected.high:.1f}) expected of these stages"
        )


def _verdict_lines(verdict: Verdict, engine: str) -> Iterator[str]:
    gain = verdict.gain
    text = ""
    if verdict.verdict == "holds" and gain is not None:
        text = f"{gain.mid:.2f}x ({gain.low:.2f}-{gain.high:.2f})"
    yield f"{_MARKS[verdict.verdict]:7s}  {text:16s} {verdict.name}"
    for line in verdict.supports:
        yield f"         + {line}"
    for line in verdict.contradicts:
        yield f"         - {line}"
    if verdict.missing:
        yield f"         ? missing: {verdict.missing}"
    if verdict.verdict == "holds":
        yield f"         fix: {verdict.fix.for_engine(engine)}"


def _verdict(verdict: Verdict, engine: str) -> dict[str, Any]:
    return {
        "hypothesis": verdict.hypothesis,
        "verdict": verdict.verdict,
        "gain": _band(verdict.gain) or {"low": None, "mid": None, "high": None},
        "evidence": [
            *(f"for: {line}" for line in verdict.supports),
            *(f"against: {line}" for line in verdict.contradicts),
            *([f"missing: {verdict.missing}"] if verdict.missing else []),
        ],
        "fix": verdict.fix.for_engine(engine),
        "fixes": {name: getattr(verdict.fix, name) for name in verdict.fix.__struct_fields__},
        "knob": verdict.knob,
        "value": verdict.value,
    }


def _micro_batches(spans: Sequence[StageSpan]) -> list[dict[str, Any]]:
    """Per stage: how many micro-batches, their decode sizes and times."""
    found = []
    for stage in sorted({span.stage for span in spans}):
        mine = [span for span in spans if span.stage == stage]
        decodes = sorted(span.decode for span in mine if span.decode)
        lengths = sorted(span.end - span.start for span in mine)
        found.append(
            {
                "stage": stage,
                "count": len(mine),
                "decode_median": decodes[len(decodes) // 2] if decodes else 0,
                "decode_sizes": sorted(set(decodes), reverse=True),
                "prefill": sum(1 for span in mine if span.prefill),
                "median_ms": lengths[len(lengths) // 2] / 1e6,
            }
        )
    return found


def _band(band: Band | None) -> dict[str, float] | None:
    return None if band is None else {"low": band.low, "mid": band.mid, "high": band.high}


def _gain_text(gain: Band | None) -> str:
    if gain is None:
        return ""
    if gain.mid < 1.02:
        return " (fixing it alone gains nothing)"
    return f" (fixing it gives {gain.low:.2g}-{gain.high:.2g}x)"
