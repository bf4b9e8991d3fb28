"""How long prompts and outputs are: a fixed length, or uniform over a range."""

from __future__ import annotations

import random
from typing import NamedTuple


class Lengths(NamedTuple):
    """Whole token counts, uniform over [low, high]."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Lengths:
        """Read `128` or `64:256`; raise ValueError with one line for anything else."""
        parts = text.split(":")
        try:
            low, high = int(parts[0]), int(parts[-1])
        except ValueError:
            low = high = 0
        if len(parts) > 2 or not 1 <= low <= high:
            raise ValueError(f"{text!r} is not a length: write tokens as 128, or a range as 64:256")
        return cls(low, high)

    def draw(self, rng: random.Random) -> int:
        return rng.randint(self.low, self.high)

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}:{self.high}"
