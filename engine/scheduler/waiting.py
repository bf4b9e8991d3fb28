"""Requests that wait for a row: by priority, then by arrival. A preempted request returns to the place it had."""

from __future__ import annotations

import heapq

from engine.scheduler.request import Request, State


class WaitingQueue:
    """A heap by `Request.order`; an ended request leaves when it comes to the head."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, int], Request]] = []
        self._count = 0
        self.tokens = 0

    def __len__(self) -> int:
        return self._count

    def push(self, request: Request) -> None:
        """Queue a request whose state is WAITING."""
        heapq.heappush(self._heap, (request.order, request))
        self._count += 1
        self.tokens += len(request.tokens)

    def head(self) -> Request:
        """The request to run next. Raise IndexError when nothing waits."""
        while self._heap[0][1].state is not State.WAITING:
            heapq.heappop(self._heap)
        return self._heap[0][1]

    def pop(self) -> Request:
        """Take the head."""
        request = self.head()
        heapq.heappop(self._heap)
        self._forget(request)
        return request

    def discard(self, request: Request) -> None:
        """Count out a queued request whose state has just become FINISHED."""
        self._forget(request)

    def requests(self) -> list[Request]:
        """Everything that waits, in order."""
        return [request for _, request in sorted(self._heap) if request.state is State.WAITING]

    def _forget(self, request: Request) -> None:
        self._count -= 1
        self.tokens -= len(request.tokens)
