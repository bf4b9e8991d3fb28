"""Prometheus exposition text, as far as it is needed to find samples by name and label."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from probes.attach.snapshot import NotAServer


class Sample(msgspec.Struct, frozen=True):
    """One finite sample."""

    name: str
    labels: dict[str, str]
    value: float


class Scrape:
    """The samples of one scrape, by name. Raise NotAServer for text that is no exposition."""

    def __init__(self, text: str) -> None:
        self._by_name: dict[str, list[Sample]] = {}
        for sample in _samples(text):
            self._by_name.setdefault(sample.name, []).append(sample)

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def all(self, name: str) -> list[Sample]:
        """Every sample of that name."""
        return self._by_name.get(name, [])

    def total(self, name: str, **labels: str) -> float | None:
        """The sum over samples with these labels; None without any."""
        values = [s.value for s in self.all(name) if all(s.labels.get(key) == want for key, want in labels.items())]
        return sum(values) if values else None

    def has_prefix(self, prefix: str) -> bool:
        """Whether any name begins like that."""
        return any(name.startswith(prefix) for name in self._by_name)


def _samples(text: str) -> Iterator[Sample]:
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if not sample.name.endswith("_bucket") and isfinite(sample.value):
                    yield Sample(sample.name, dict(sample.labels), float(sample.value))
    except (ValueError, IndexError, KeyError) as error:
        raise NotAServer(f"this is no Prometheus text: {' '.join(str(error).split())[:100]}") from None
