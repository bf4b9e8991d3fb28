"""Watts by an energy counter that is read more seldom than it is told."""

from __future__ import annotations

import pytest

from sessions.energy import EnergyCounter

SECOND = 1_000_000_000


def told(readings: dict[float, float]) -> EnergyCounter:
    counter = EnergyCounter()
    for seconds, joules in readings.items():
        counter.add(int(seconds * SECOND), joules)
    return counter


def test_a_stale_reading_at_the_start_says_nothing() -> None:
    """300 W throughout; the first reading is 9 s old when the window begins."""
    counter = told({0.0: 1000.0, 0.5: 1000.0, 1.0: 4000.0, 6.0: 4000.0, 11.0: 7000.0, 12.0: 7000.0})
    assert counter.watts() == pytest.approx(300.0)


def test_one_change_is_not_enough() -> None:
    assert told({0.0: 1000.0, 1.0: 4000.0, 2.0: 4000.0}).watts() is None
    assert told({}).watts() is None


def test_a_counter_that_went_back_tells_none() -> None:
    assert told({0.0: 1000.0, 1.0: 4000.0, 2.0: 5.0}).watts() is None
