"""A bounded history of one figure."""

from __future__ import annotations

from collections import deque


class Series:
    """Samples (t in ns, value), oldest first, at most `capacity` of them."""

    def __init__(self, capacity: int) -> None:
        self._samples: deque[tuple[int, float]] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._samples)

    def append(self, t_ns: int, value: float) -> None:
        """Add a sample; one that is older than the last is not kept, so that time never runs back."""
        if not self._samples or t_ns >= self._samples[-1][0]:
            self._samples.append((t_ns, value))

    @property
    def last(self) -> float | None:
        """The newest value."""
        return self._samples[-1][1] if self._samples else None

    @property
    def last_t_ns(self) -> int | None:
        """When the newest value was taken."""
        return self._samples[-1][0] if self._samples else None

    def since(self, t_ns: int) -> list[tuple[int, float]]:
        """Samples taken after `t_ns`, oldest first."""
        newest_first = []
        for sample in reversed(self._samples):
            if sample[0] <= t_ns:
                break
            newest_first.append(sample)
        newest_first.reverse()
        return newest_first

    def mean_of_last(self, window_ns: int) -> float | None:
        """Mean of the newest sample and those less than `window_ns` older; None when there are none."""
        if self.last_t_ns is None:
            return None
        values = [value for _, value in self.since(self.last_t_ns - window_ns)]
        return sum(values) / len(values)

    def columns(self, start_ns: int, column_ns: int, count: int) -> list[float | None]:
        """Means over `count` columns of `column_ns` from `start_ns` on; None where nothing was sampled."""
        sums = [0.0] * count
        counts = [0] * count
        for t_ns, value in self.since(start_ns - 1):
            column = (t_ns - start_ns) // column_ns
            if column >= count:
                break
            sums[column] += value
            counts[column] += 1
        return [total / n if n else None for total, n in zip(sums, counts, strict=True)]

    def clear(self) -> None:
        """Forget everything."""
        self._samples.clear()
