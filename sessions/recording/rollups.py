"""One figure a second of what a scrub bar shows, from the stream as it passes."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

import msgspec

from sessions.messages import GpuFrame, Message, QueueFrame, StageFrame

SECOND_NS = 1_000_000_000
_START, _END = attrgetter("start"), attrgetter("end")


class Rollup(msgspec.Struct, frozen=True):
    """Means over [t_ns, t_ns + 1 s); None where nothing was measured.

    tokens_per_s counts output tokens; watts adds up the GPUs; waves (N_eff) and herd_index (H) are means over
    scheduling instants; running and waiting are requests; occupancy is the stages' computing share (0..1).
    """

    t_ns: int
    tokens_per_s: float | None = None
    watts: float | None = None
    waves: float | None = None
    herd_index: float | None = None
    running: float | None = None
    waiting: float | None = None
    occupancy: float | None = None


class RollupBuilder:
    """Feed it messages in order of arrival; it yields each second once a later one begins."""

    def __init__(self) -> None:
        self._second: int | None = None
        self._queues: dict[str, QueueFrame] = {}
        self._clear()

    def _clear(self) -> None:
        self._tokens = 0.0
        self._tokens_ns = 0
        self._waves = 0.0
        self._herd = 0.0
        self._samples = 0
        self._sizes: list[tuple[int, int]] = []
        self._watts: dict[tuple[str, int], list[float]] = {}
        self._busy = 0
        self._window = 0

    def feed(self, at_ns: int, message: Message) -> Iterator[Rollup]:
        """Take the next message; yields the second before it when it opens a new one."""
        second = at_ns // SECOND_NS * SECOND_NS
        if self._second is not None and second != self._second:
            yield self._rollup(self._second)
            self._clear()
        self._second = second
        match message:
            case QueueFrame():
                self._add_queue(message)
            case GpuFrame(power_watts=float(watts)):
                self._watts.setdefault((message.source, message.index), []).append(watts)
            case StageFrame():
                self._window += message.window_ns
                self._busy += sum(map(_END, message.spans)) - sum(map(_START, message.spans))

    def finish(self) -> Iterator[Rollup]:
        """The second begun last, though it is not over."""
        if self._second is not None:
            yield self._rollup(self._second)
            self._second = None

    def _add_queue(self, frame: QueueFrame) -> None:
        self._sizes.append((frame.running, frame.waiting))
        before = self._queues.get(frame.source)
        self._queues[frame.source] = frame
        if before is None or frame.t_ns <= before.t_ns or frame.steps_total < before.steps_total:
            return
        self._tokens += frame.output_tokens_total - before.output_tokens_total
        self._tokens_ns += frame.t_ns - before.t_ns
        self._waves += frame.waves_sum - before.waves_sum
        self._herd += frame.herd_index_sum - before.herd_index_sum
        self._samples += frame.herd_samples - before.herd_samples

    def _rollup(self, t_ns: int) -> Rollup:
        count = len(self._sizes)
        return Rollup(
            t_ns,
            tokens_per_s=self._tokens / self._tokens_ns * SECOND_NS if self._tokens_ns else None,
            watts=sum(sum(values) / len(values) for values in self._watts.values()) if self._watts else None,
            waves=self._waves / self._samples if self._samples else None,
            herd_index=self._herd / self._samples if self._samples else None,
            running=sum(running for running, _ in self._sizes) / count if count else None,
            waiting=sum(waiting for _, waiting in self._sizes) / count if count else None,
            occupancy=min(1.0, self._busy / self._window) if self._window else None,
        )
