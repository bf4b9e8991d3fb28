from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.console.frame_clock import CALM_FRAMES, LOCAL_FPS, MIN_WAIT_S, SLOWEST_FPS, SSH_FPS, FrameClock


def test_ten_frames_a_second_here_and_four_over_ssh() -> None:
    assert FrameClock({}).fps == LOCAL_FPS
    assert FrameClock({"SSH_CONNECTION": "10.0.0.1 22"}).fps == SSH_FPS


def test_a_link_that_does_not_keep_up_halves_the_rate_and_calm_brings_it_back() -> None:
    clock = FrameClock({})
    clock.drawn(backlog=10, cost_s=0.0)
    assert clock.fps == LOCAL_FPS / 2
    for _ in range(3 * CALM_FRAMES):
        clock.drawn(backlog=0, cost_s=0.0)
    assert clock.fps == LOCAL_FPS


def test_drawing_that_takes_most_of_a_frame_lowers_the_rate() -> None:
    clock = FrameClock({})
    clock.drawn(backlog=0, cost_s=0.09)
    assert clock.fps < LOCAL_FPS


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0, 3)), max_size=200), st.booleans())
def test_the_rate_stays_within_its_bounds(frames: list[tuple[int, float]], remote: bool) -> None:
    clock = FrameClock({"SSH_TTY": "/dev/pts/1"} if remote else {})
    for backlog, cost in frames:
        clock.drawn(backlog, cost)
        assert SLOWEST_FPS <= clock.fps <= clock.most_fps


def test_frames_keep_to_a_grid_and_those_missed_are_not_made_up_for() -> None:
    clock = FrameClock({})
    period = 1 / LOCAL_FPS
    assert clock.wait_s(5.0) == pytest.approx(period)
    assert clock.wait_s(5.0 + 1.3 * period) == pytest.approx(0.7 * period)
    assert clock.wait_s(5.0 + 9 * period) == MIN_WAIT_S
    assert clock.wait_s(5.0 + 9.5 * period) == pytest.approx(0.5 * period)
