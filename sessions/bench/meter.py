"""What happens during one load point: every request followed from its due instant to its end, and the frames beside it.

The measured window opens when the warm-up requests have ended (at the first request, without a warm-up) and closes
when the load begins to fall because nothing more will come. Throughput, herd, occupancy, queue and power are those of
the window; latencies are those of the requests that became due within it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sessions.load.generators import Due
from sessions.messages import Finished, FinishReason, GpuFrame, Message, QueueFrame, StageFrame, TokenFrame


class RequestTrack:
    """One request: when it was due, when its tokens came (ns; one instant a token) and how it ended."""

    __slots__ = ("detail", "due_ns", "ended", "order", "times", "tokens")

    def __init__(self, order: int, due_ns: int) -> None:
        self.order = order
        self.due_ns = due_ns
        self.times: list[int] = []
        self.tokens: list[int] = []
        self.ended: FinishReason | None = None
        self.detail = ""


class Meter:
    """Collects one point."""

    def __init__(self, warmup: int) -> None:
        self._warmup = warmup
        self._ended = 0
        self.requests: dict[str, RequestTrack] = {}
        self.live = 0
        self.most_live = 0
        self.open_ns: int | None = None
        self.close_ns: int | None = None
        self.last_token_ns = 0
        self.last_sign_ns = 0
        self.queues: list[QueueFrame] = []
        self.stages: list[StageFrame] = []
        self.gpus: list[GpuFrame] = []

    def submitted(self, batch: Sequence[Due]) -> None:
        """These requests go to the engine now."""
        for due in batch:
            self.requests[due.request.id] = RequestTrack(len(self.requests), due.due_ns)
            self.last_sign_ns = max(self.last_sign_ns, due.due_ns)
        self.live += len(batch)
        self.most_live = max(self.most_live, self.live)
        if self._warmup == 0 and self.open_ns is None and batch:
            self.open_ns = batch[0].due_ns

    def take(self, message: Message) -> list[str]:
        """Note a message; return the ids of our requests that ended with it."""
        match message:
            case TokenFrame():
                return self._take_tokens(message)
            case QueueFrame():
                self.queues.append(message)
            case StageFrame():
                self.stages.append(message)
            case GpuFrame():
                self.gpus.append(message)
        return []

    def refused(self, ids: Sequence[str], reason: str, now_ns: int) -> None:
        """The engine took none of these."""
        for request in ids:
            self._end(
                Finished(request=request, reason="refused", prompt_tokens=0, output_tokens=0, detail=reason), now_ns
            )

    def draining(self, now_ns: int) -> None:
        """The load begins to fall: close the window."""
        if self.close_ns is None and self.open_ns is not None and now_ns > self.open_ns:
            self.close_ns = now_ns

    def _take_tokens(self, frame: TokenFrame) -> list[str]:
        for event in frame.events:
            track = self.requests.get(event.request)
            if track is not None:
                track.times += [frame.t_ns] * len(event.tokens)
                track.tokens += event.tokens
                self.last_token_ns = self.last_sign_ns = frame.t_ns
        return [end.request for end in frame.finished if self._end(end, frame.t_ns)]

    def _end(self, end: Finished, now_ns: int) -> bool:
        track = self.requests.get(end.request)
        if track is None or track.ended is not None:
            return False
        track.ended = end.reason
        track.detail = end.detail
        self.live -= 1
        self._ended += 1
        if self.open_ns is None and self._ended >= self._warmup:
            self.open_ns = now_ns
        return True
