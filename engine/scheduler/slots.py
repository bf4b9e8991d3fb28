"""Slots, the places of micro-batches in flight, and the pool of running requests that are in no slot."""

from __future__ import annotations

from collections import deque

from engine.scheduler.request import Request


class Group:
    """Running requests by what they do next, each in the order in which they joined (dicts used as ordered sets)."""

    __slots__ = ("decoding", "prefilling")

    def __init__(self) -> None:
        self.decoding: dict[Request, None] = {}
        self.prefilling: dict[Request, None] = {}

    @property
    def live(self) -> int:
        """Requests in this group."""
        return len(self.decoding) + len(self.prefilling)

    @property
    def busy(self) -> bool:
        """Whether submitted steps may still use these requests' rows and blocks."""
        return False

    def remove(self, request: Request) -> None:
        """Take out one request that is here."""
        if request in self.decoding:
            del self.decoding[request]
        else:
            del self.prefilling[request]
        request.group = None

    def move_all(self, other: Group) -> None:
        """Move everything to the end of `other`."""
        for request in self.decoding:
            request.group = other
        for request in self.prefilling:
            request.group = other
        if other.decoding:
            other.decoding.update(self.decoding)
            self.decoding.clear()
        else:
            other.decoding, self.decoding = self.decoding, other.decoding
        other.prefilling.update(self.prefilling)
        self.prefilling.clear()


class Flight:
    """A submitted micro-batch: the requests that get its tokens, in the order of the plan's sampled rows."""

    __slots__ = ("sampled", "slot", "step")

    def __init__(self, step: int, slot: Slot, sampled: list[Request]) -> None:
        self.step = step
        self.slot = slot
        self.sampled = sampled


class Slot(Group):
    """A micro-batch's place. `outstanding` steps are submitted and not completed, oldest first: more than one only when
    the slot runs ahead. `leaving` holds ended requests with the last step that may still use their rows and blocks."""

    __slots__ = ("index", "leaving", "outstanding")

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.outstanding: deque[Flight] = deque()
        self.leaving: deque[tuple[int, Request]] = deque()

    @property
    def busy(self) -> bool:
        return bool(self.outstanding)
