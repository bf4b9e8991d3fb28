"""From a meter's notes to the figures of one repetition of one point."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from sessions.bench.gpus import conditions, energy_per_token, power
from sessions.bench.meter import Meter, RequestTrack
from sessions.herd import herd_index, waves
from sessions.messages import QueueFrame, StageFrame
from sessions.results import GpuConditions, RequestCounts


class Sample(NamedTuple):
    """One repetition of one point. Latencies in ms, one entry a request (ITL: one a gap); `occupancy` a stage."""

    output_tokens_per_s: float
    ttft_ms: list[float]
    itl_ms: list[float]
    tpot_ms: list[float]
    e2e_ms: list[float]
    herd_index: float | None
    waves: float | None
    occupancy: list[float]
    queue_depth: float | None
    power_w: list[float | None] | None
    energy_j_per_token: float | None
    gpus: list[GpuConditions]
    requests: RequestCounts
    duration_s: float
    preempted: int
    most_live: int
    outputs_digest: str
    reasons: dict[str, int]


def sample(meter: Meter, stages: int) -> Sample:
    """Work out a finished point's figures, of an engine of `stages` stages."""
    open_ns, close_ns = window(meter)
    seconds = (close_ns - open_ns) / 1e9
    tracks = sorted(meter.requests.values(), key=lambda track: track.order)
    measured = [track for track in tracks if track.due_ns >= open_ns and track.ended in ("length", "stop")]
    tokens = sum(open_ns < t <= close_ns for track in tracks for t in track.times)
    herd, n_eff = herd_means(meter.queues, stages, open_ns, close_ns)
    inside = [frame for frame in meter.queues if open_ns <= frame.t_ns <= close_ns]
    return Sample(
        output_tokens_per_s=tokens / seconds if seconds > 0 else 0.0,
        ttft_ms=[(track.times[0] - track.due_ns) / 1e6 for track in measured if track.times],
        itl_ms=[(b - a) / 1e6 for track in measured for a, b in pairwise(track.times)],
        tpot_ms=[(t[-1] - t[0]) / 1e6 / (len(t) - 1) for t in (track.times for track in measured) if len(t) > 1],
        e2e_ms=[(track.times[-1] - track.due_ns) / 1e6 for track in measured if track.times],
        herd_index=herd,
        waves=n_eff,
        occupancy=occupancy(meter.stages, stages, open_ns, close_ns),
        queue_depth=sum(frame.waiting for frame in inside) / len(inside) if inside else None,
        power_w=power(meter.gpus, (open_ns, close_ns)),
        energy_j_per_token=energy_per_token(meter.gpus, (open_ns, close_ns), tokens),
        gpus=conditions(meter.gpus, (open_ns, close_ns)),
        requests=_counts(tracks),
        duration_s=seconds,
        preempted=meter.queues[-1].preempted_total - meter.queues[0].preempted_total if meter.queues else 0,
        most_live=meter.most_live,
        outputs_digest=_digest(tracks),
        reasons=_reasons(tracks),
    )


def window(meter: Meter) -> tuple[int, int]:
    """The measured window, ns; up to the last token where the load never began to fall while tokens still came."""
    open_ns = meter.open_ns or 0
    close_ns = meter.close_ns if meter.close_ns is not None else meter.last_token_ns
    return open_ns, max(open_ns, min(close_ns, max(meter.last_token_ns, open_ns)))


def occupancy(frames: Iterable[StageFrame], stages: int, open_ns: int, close_ns: int) -> list[float]:
    """Each stage's computing share of the window, 0..1 (the mean over a stage's ranks); [] without any span."""
    busy: dict[tuple[int, int], int] = defaultdict(int)
    for frame in frames:
        busy[frame.stage, frame.rank] += sum(
            max(0, min(frame.t_ns + span.end, close_ns) - max(frame.t_ns + span.start, open_ns)) for span in frame.spans
        )
    if not any(busy.values()):
        return []
    shares: list[float] = []
    for stage in range(stages):
        ranks = [nanoseconds for (of, _), nanoseconds in busy.items() if of == stage]
        shares.append(min(1.0, sum(ranks) / len(ranks) / (close_ns - open_ns)) if ranks else 0.0)
    return shares


def herd_means(
    queues: Sequence[QueueFrame], stages: int, open_ns: int, close_ns: int
) -> tuple[float | None, float | None]:
    """Means of H and N_eff over the window: from the driver's running sums over every scheduling instant where it
    keeps them, else over the slots of the frames inside the window."""
    inside = [frame for frame in queues if open_ns <= frame.t_ns <= close_ns]
    before = [frame for frame in queues if frame.t_ns < open_ns][-1:]
    after = [frame for frame in queues if frame.t_ns > close_ns][:1]
    for frames in (inside, [*before, *inside, *after]):
        if frames and (count := frames[-1].herd_samples - frames[0].herd_samples) > 0:
            return (
                (frames[-1].herd_index_sum - frames[0].herd_index_sum) / count,
                (frames[-1].waves_sum - frames[0].waves_sum) / count,
            )
    sizes = [[slot.decode for slot in frame.slots] for frame in inside]
    return _mean([herd_index(s, stages).value for s in sizes]), _mean([waves(s).value for s in sizes])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _counts(tracks: Sequence[RequestTrack]) -> RequestCounts:
    ends = [track.ended for track in tracks]
    return RequestCounts(
        finished=ends.count("length") + ends.count("stop"),
        cancelled=ends.count("cancelled"),
        refused=ends.count("refused"),
        failed=ends.count("failed") + ends.count(None),
    )


def _reasons(tracks: Sequence[RequestTrack]) -> dict[str, int]:
    """How often each reason was given for a request that did not finish."""
    reasons: dict[str, int] = defaultdict(int)
    for track in tracks:
        if track.ended not in ("length", "stop"):
            reasons[f"{track.ended or 'no end'}: {track.detail or 'no reason given'}"] += 1
    return dict(reasons)


def _digest(tracks: Sequence[RequestTrack]) -> str:
    digest = hashlib.sha256()
    for track in tracks:
        digest.update(msgspec.msgpack.encode(track.tokens))
    return digest.hexdigest()
