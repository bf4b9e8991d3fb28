"""Generators: state machines that say which requests are due. They hold no socket and no thread and never sleep; the
caller tells them the time, so the same ones run in wall time and in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from sessions.load.rate import Rate
from sessions.messages import RequestSpec

Item = TypeVar("Item")


class Due(NamedTuple):
    """A request and the instant it was due. Latency counts from there, not from when a late sender got round to it."""

    request: RequestSpec
    due_ns: int


class Generator(Protocol):
    """Which requests are due, told the time and every end of a request."""

    def due(self, now_ns: int) -> list[Due]:
        """Requests that are due by now and were not given out yet; the caller submits them together."""
        ...

    def next_due_ns(self) -> int | None:
        """When `due` should be asked next; None when only the end of a request can make one due, or nothing can."""
        ...

    def finished(self, request: str, now_ns: int) -> None:
        """This request ended, in whatever way."""
        ...

    @property
    def draining(self) -> bool:
        """Nothing more will come, and the load has begun to fall because of it."""
        ...


class _Peekable(Generic[Item]):
    """An iterator whose next item can be looked at."""

    def __init__(self, items: Iterator[Item]) -> None:
        self._items = items
        self.head = next(items, None)

    def take(self) -> Item:
        head = self.head
        if head is None:
            raise IndexError("nothing is left to take")
        self.head = next(self._items, None)
        return head


class ClosedLoop:
    """Keeps `concurrency` requests running: each end starts the next. With `ramp_s`, concurrency grows to that
    linearly from 1 over so many seconds."""

    def __init__(self, requests: Iterator[RequestSpec], concurrency: int, start_ns: int, ramp_s: float = 0.0) -> None:
        self._requests = _Peekable(requests)
        self._concurrency = concurrency
        self._start_ns = start_ns
        self._ramp_ns = round(ramp_s * 1e9)
        self._live: set[str] = set()
        self._now_ns = start_ns

    @property
    def concurrency(self) -> int:
        return self._concurrency

    def set_concurrency(self, concurrency: int) -> None:
        """Change the target at once; requests above a lower target run to their end and are not replaced."""
        self._concurrency = concurrency
        self._ramp_ns = 0

    def due(self, now_ns: int) -> list[Due]:
        self._now_ns = now_ns
        batch: list[Due] = []
        while len(self._live) < self._target(now_ns) and self._requests.head is not None:
            request = self._requests.take()
            self._live.add(request.id)
            batch.append(Due(request, now_ns))
        return batch

    def next_due_ns(self) -> int | None:
        if self._requests.head is None:
            return None
        if len(self._live) < self._target(self._now_ns):
            return self._now_ns
        if len(self._live) >= self._concurrency or not self._ramp_ns:
            return None
        return self._start_ns + -(-self._ramp_ns * len(self._live) // self._concurrency)

    def finished(self, request: str, now_ns: int) -> None:
        self._live.discard(request)
        self._now_ns = now_ns

    @property
    def draining(self) -> bool:
        return self._requests.head is None and len(self._live) < self._concurrency

    def _target(self, now_ns: int) -> int:
        elapsed = now_ns - self._start_ns
        if elapsed >= self._ramp_ns:
            return self._concurrency
        return min(self._concurrency, 1 + self._concurrency * elapsed // self._ramp_ns)


class OpenLoop:
    """Arrivals that do not wait for the engine: unit-rate `gaps` stretched by `rate`."""

    def __init__(self, requests: Iterator[RequestSpec], gaps: Iterator[float], rate: Rate) -> None:
        self._requests = _Peekable(requests)
        self._gaps = gaps
        self.rate = rate
        self._next = next(gaps)

    def due(self, now_ns: int) -> list[Due]:
        batch: list[Due] = []
        while (due_ns := self.next_due_ns()) is not None and due_ns <= now_ns:
            batch.append(Due(self._requests.take(), due_ns))
            self._next += next(self._gaps)
        return batch

    def next_due_ns(self) -> int | None:
        return None if self._requests.head is None else self.rate.instant_ns(self._next)

    def finished(self, request: str, now_ns: int) -> None:
        pass

    @property
    def draining(self) -> bool:
        return self._requests.head is None


class Replay:
    """Requests due at recorded instants, ns after `start_ns`."""

    def __init__(self, requests: Iterator[tuple[int, RequestSpec]], start_ns: int) -> None:
        self._requests = _Peekable(requests)
        self._start_ns = start_ns

    def due(self, now_ns: int) -> list[Due]:
        batch: list[Due] = []
        while (due_ns := self.next_due_ns()) is not None and due_ns <= now_ns:
            batch.append(Due(self._requests.take()[1], due_ns))
        return batch

    def next_due_ns(self) -> int | None:
        head = self._requests.head
        return None if head is None else self._start_ns + head[0]

    def finished(self, request: str, now_ns: int) -> None:
        pass

    @property
    def draining(self) -> bool:
        return self._requests.head is None
