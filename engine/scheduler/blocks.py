"""Free lists of the workers' request rows and of the paged KV cache's blocks; all stages share one numbering."""

from __future__ import annotations


class FreeList:
    """Whole numbers 0..count-1, each free or taken. The lowest are handed out first, then the last returned."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(range(count - 1, -1, -1))

    @property
    def free(self) -> int:
        """How many can be taken now."""
        return len(self._free)

    @property
    def used(self) -> int:
        """How many are taken."""
        return self.count - len(self._free)

    def take(self, count: int) -> list[int]:
        """Take `count` of them. Raise IndexError when fewer are free."""
        if count > len(self._free):
            raise IndexError(f"{count} asked for, {len(self._free)} free")
        if count == 0:
            return []
        taken = self._free[-count:]
        del self._free[-count:]
        taken.reverse()
        return taken

    def give(self, taken: list[int]) -> None:
        """Return what was taken."""
        self._free.extend(reversed(taken))


def blocks_for(tokens: int, block_size: int) -> int:
    """Blocks that hold `tokens` tokens."""
    return -(-tokens // block_size)
