"""When an experiment looks at its data, so that stopping early does not make false claims.

Each of J looks may spend alpha / J (Bonferroni), whatever was seen before: the chance of any false claim over all
looks is at most alpha. Between looks nothing is tested.
"""

from __future__ import annotations

import math

from sessions.compare.ab.design import DesignError
from sessions.compare.repetitions import fewest
from sessions.compare.signed_rank import smallest_p

MOST_LOOKS = 4


def look_schedule(tests: int, alpha: float, most: int | None) -> list[int]:
    """Numbers of blocks after which to look, for `tests` contrasts corrected by Holm; the last is `most` (by default
    three times the first). Raise DesignError when `most` blocks could not show anything."""
    if most is None:
        first = first_look(tests, alpha, MOST_LOOKS)
        return sorted({first, math.ceil(1.5 * first), 2 * first, 3 * first})
    for looks in range(MOST_LOOKS, 0, -1):
        first = first_look(tests, alpha, looks)
        if first <= most:
            return sorted(
                {first + round((most - first) * place / max(1, looks - 1)) for place in range(looks)} | {most}
            )
    raise DesignError(f"{most} repetitions cannot show anything: {first_look(tests, alpha, 1)} are the fewest here")


def first_look(tests: int, alpha: float, looks: int) -> int:
    """Fewest blocks in which the smallest possible p passes Holm's first step at one look."""
    return fewest(alpha / looks / tests, smallest_p)
