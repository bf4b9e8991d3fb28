"""Slots, the places of micro-batches in flight."""

from __future__ import annotations

from collections import deque

from engine.scheduler.request import Group, Request


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
