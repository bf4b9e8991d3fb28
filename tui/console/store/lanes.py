"""What each rank did: its spans on the session's clock."""

from __future__ import annotations

import bisect
from collections import deque
from typing import NamedTuple

from sessions.messages import StageFrame

SPANS_KEPT = 4096


class LaneSpan(NamedTuple):
    """One micro-batch on one rank, in ns of the session's clock; see sessions.messages.Span for the instants."""

    ready: int
    start: int
    end: int
    slot: int
    step: int
    decode: int
    prefill_tokens: int
    graph: bool


class Lane:
    """The last spans of one rank, in the order in which they ended."""

    def __init__(self, stage: int, rank: int) -> None:
        self.stage = stage
        self.rank = rank
        self.version = 0
        self.clock_residual_ns = 0
        self._spans: deque[LaneSpan] = deque(maxlen=SPANS_KEPT)

    def extend(self, frame: StageFrame, offset_ns: int) -> None:
        """Add a frame's spans; `offset_ns` takes the source's clock to the session's."""
        base = frame.t_ns + offset_ns
        for span in frame.spans:
            self._spans.append(
                LaneSpan(
                    base + span.ready,
                    base + span.start,
                    base + span.end,
                    span.slot,
                    span.step,
                    span.decode,
                    span.prefill_tokens,
                    span.graph,
                )
            )
        self.clock_residual_ns = frame.clock_residual_ns
        self.version += 1

    @property
    def last_end_ns(self) -> int | None:
        """When the newest span ended."""
        return self._spans[-1].end if self._spans else None

    def ended_by(self, t_ns: int) -> int | None:
        """When the last span that ended by `t_ns` did."""
        count = self._count(t_ns)
        return self._spans[count - 1].end if count else None

    def _count(self, until_ns: int) -> int:
        """Spans that ended by an instant."""
        return bisect.bisect_right(self._spans, until_ns, key=lambda span: span.end)

    def between(self, start_ns: int, end_ns: int) -> list[LaneSpan]:
        """Spans that touch [start_ns, end_ns), oldest first."""
        newest_first = []
        for span in reversed(self._spans):
            if span.end <= start_ns:
                break
            if span.ready < end_ns:
                newest_first.append(span)
        newest_first.reverse()
        return newest_first

    def occupied(self, start_ns: int, end_ns: int) -> float | None:
        """Share of [start_ns, end_ns) in which the rank held a micro-batch (ready to end); None without spans.

        1 minus this is the bubble. Time before the oldest span kept counts for nothing, so early figures are right too.
        """
        if not self._spans:
            return None
        start_ns = max(start_ns, self._spans[0].ready)
        if end_ns <= start_ns:
            return None
        held = 0
        covered = start_ns
        for span in self.between(start_ns, end_ns):
            begin, finish = max(span.ready, covered), min(span.end, end_ns)
            if finish > begin:
                held += finish - begin
                covered = finish
        return held / (end_ns - start_ns)

    def typical_span_ns(self, until_ns: int) -> int | None:
        """Median length of the last 32 spans that ended by an instant."""
        count = self._count(until_ns)
        newest = [self._spans[i] for i in range(max(0, count - 32), count)]
        lengths = sorted(span.end - span.ready for span in newest)
        return lengths[len(lengths) // 2] if lengths else None
