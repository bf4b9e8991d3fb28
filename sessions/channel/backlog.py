"""An ordered queue of which some items may be dropped, the oldest first, to keep it bounded."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")

_SLACK = 256


class _Item(Generic[T]):
    __slots__ = ("droppable", "value")

    def __init__(self, value: T, droppable: bool) -> None:
        self.value: T | None = value
        self.droppable = droppable


class Backlog(Generic[T]):
    """First in, first out; dropping the oldest droppable item takes constant time wherever it stands."""

    def __init__(self) -> None:
        self._items: deque[_Item[T]] = deque()
        self._droppable: deque[_Item[T]] = deque()
        self._holes = 0

    def __len__(self) -> int:
        return len(self._items) - self._holes

    @property
    def droppable(self) -> int:
        """How many of the items may be dropped."""
        return len(self._droppable)

    def append(self, value: T, droppable: bool) -> None:
        """Add at the end."""
        item = _Item(value, droppable)
        self._items.append(item)
        if droppable:
            self._droppable.append(item)

    def drop_oldest(self) -> T:
        """Remove the oldest droppable item; raise IndexError when there is none."""
        item = self._droppable.popleft()
        value = item.value
        assert value is not None
        item.value = None
        self._holes += 1
        if self._holes > len(self) + _SLACK:
            self._items = deque(item for item in self._items if item.value is not None)
            self._holes = 0
        return value

    def pop(self) -> T:
        """Remove the first item; raise IndexError when there is none."""
        while True:
            item = self._items.popleft()
            if item.value is None:
                self._holes -= 1
                continue
            if item.droppable:
                self._droppable.popleft()
            return item.value

    def take_all(self) -> list[T]:
        """Remove everything."""
        taken = [item.value for item in self._items if item.value is not None]
        self._items.clear()
        self._droppable.clear()
        self._holes = 0
        return taken
