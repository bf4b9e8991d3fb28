"""Tells a channel how a benchmark is going, so that consoles and recordings show it."""

from __future__ import annotations

from sessions.bench.runner import Progress, Report
from sessions.channel.interface import Channel
from sessions.clock import MonotonicClock
from sessions.messages import BenchDone, BenchPhase
from sessions.results import BenchResult

TELL_EVERY_NS = 100_000_000


def publisher(channel: Channel, also: Report) -> Report:
    """A report that publishes each phase (at most 10 a second within one) and hands it to `also` too."""
    clock = MonotonicClock()
    last: tuple[str, int | None] = ("", None)
    told_ns = 0

    def report(progress: Progress) -> None:
        nonlocal last, told_ns
        now_ns = clock.now_ns()
        here = (progress.phase, progress.concurrency)
        if here != last or progress.point is not None or now_ns - told_ns >= TELL_EVERY_NS:
            last, told_ns = here, now_ns
            channel.publish(
                BenchPhase(
                    source=channel.source,
                    t_ns=now_ns,
                    run=progress.run,
                    phase=progress.phase,
                    progress=progress.fraction,
                    concurrency=progress.concurrency,
                    detail=progress.detail,
                    point=progress.point,
                )
            )
        also(progress)

    return report


def publish_result(channel: Channel, result: BenchResult) -> None:
    """Tell the channel the whole result."""
    now_ns = MonotonicClock().now_ns()
    channel.publish(BenchDone(source=channel.source, t_ns=now_ns, run=result.run, result=result))
