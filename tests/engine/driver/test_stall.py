"""A standstill is told, and only a standstill."""

from __future__ import annotations

from engine.driver.stall import STALL_NS, StallWatch


def test_standstill_is_told_once_an_interval() -> None:
    watch = StallWatch(0)
    assert watch.look(4, 2, 0) is None
    assert watch.look(4, 2, STALL_NS - 1) is None
    assert watch.look(4, 2, STALL_NS) == "no micro-batch has completed for 30 s, 2 are outstanding"
    assert watch.look(4, 2, STALL_NS + 1) is None
    told = watch.look(4, 2, 2 * STALL_NS)
    assert told is not None and "60 s" in told


def test_progress_and_rest_are_no_standstill() -> None:
    watch = StallWatch(0)
    assert watch.look(4, 2, 0) is None
    assert watch.look(6, 3, 2 * STALL_NS) is None
    assert watch.look(6, 0, 2 * STALL_NS + 1) is None
    assert watch.look(6, 0, 9 * STALL_NS) is None
    assert watch.look(7, 1, 9 * STALL_NS + 1) is None
