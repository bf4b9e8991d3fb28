"""Generators in virtual time: what is due when, whatever the order and speed of the engine's answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.load.arrivals import bursty_gaps, poisson_gaps
from sessions.load.generators import ClosedLoop, Due, OpenLoop, Replay
from sessions.load.lengths import Lengths
from sessions.load.prompts import random_requests
from sessions.load.rate import Rate
from sessions.messages import RequestSpec

SECOND = 1_000_000_000


def requests(count: int | None = None) -> Iterator[RequestSpec]:
    return itertools.islice(random_requests("r", 100, Lengths(2, 4), Lengths(1, 3), seed=1), count)


@given(concurrency=st.integers(1, 9), total=st.integers(0, 40), order=st.randoms(use_true_random=False))
def test_a_closed_loop_never_exceeds_its_concurrency_and_sends_every_request_once(concurrency, total, order):
    loop = ClosedLoop(requests(total), concurrency, start_ns=0)
    live: list[str] = []
    sent: list[str] = []
    now = 0
    while True:
        batch = [due.request.id for due in loop.due(now)]
        sent += batch
        live += batch
        assert len(live) <= concurrency
        assert len(live) == min(concurrency, total - (len(sent) - len(live)))
        assert loop.draining == (len(sent) == total and len(live) < concurrency)
        if not live:
            break
        now += 7
        loop.finished(live.pop(order.randrange(len(live))), now)
    assert sent == [f"r-{index}" for index in range(total)]
    assert loop.next_due_ns() is None


def test_raising_the_concurrency_is_due_at_once_and_lowering_it_lets_requests_end():
    loop = ClosedLoop(requests(), 2, start_ns=0)
    first = loop.due(0)
    loop.set_concurrency(5)
    assert loop.next_due_ns() is not None
    assert len(loop.due(10)) == 3
    loop.set_concurrency(1)
    loop.finished(first[0].request.id, 20)
    assert loop.due(20) == [] and loop.next_due_ns() is None


def test_a_closed_loop_ramps_from_one_request_to_its_concurrency():
    loop = ClosedLoop(requests(), 10, start_ns=0, ramp_s=10.0)
    live = 0
    starts = []
    now: int | None = 0
    while now is not None:
        live += len(loop.due(now))
        starts.append((now / SECOND, live))
        now = loop.next_due_ns()
    assert starts == [(float(second), second + 1) for second in range(10)]


@given(rate=st.floats(0.1, 1000), seed=st.integers(0, 5))
def test_open_arrivals_come_in_order_and_are_due_exactly_when_they_say(rate, seed):
    loop = OpenLoop(requests(50), poisson_gaps(seed), Rate(0, rate))
    instants = []
    while (due_ns := loop.next_due_ns()) is not None:
        assert loop.due(due_ns - 1) == []
        instants += [due.due_ns for due in loop.due(due_ns)]
    assert len(instants) == 50 and instants == sorted(instants)


def test_a_late_caller_gets_every_request_with_the_instant_it_was_due():
    on_time = OpenLoop(requests(20), poisson_gaps(0), Rate(0, 5.0))
    expected: list[Due] = []
    while (due_ns := on_time.next_due_ns()) is not None:
        expected += on_time.due(due_ns)
    late = OpenLoop(requests(20), poisson_gaps(0), Rate(0, 5.0)).due(1000 * SECOND)
    assert late == expected


def test_poisson_arrivals_have_the_rate_and_the_variation_of_a_poisson_process():
    gaps = list(itertools.islice(poisson_gaps(3), 20000))
    assert mean(gaps) == pytest.approx(1.0, abs=0.03)
    assert stdev(gaps) / mean(gaps) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("variation", [0.3, 2.0, 4.0])
def test_bursty_arrivals_have_the_variation_asked_for(variation):
    gaps = list(itertools.islice(bursty_gaps(3, variation), 60000))
    assert mean(gaps) == pytest.approx(1.0, abs=0.06)
    assert stdev(gaps) / mean(gaps) == pytest.approx(variation, rel=0.1)


@given(
    start=st.floats(0, 50),
    end=st.floats(0.01, 50),
    ramp_s=st.floats(0.01, 100),
    arrivals=st.floats(0.001, 500),
)
def test_operational_time_and_its_inverse_agree(start, end, ramp_s, arrivals):
    rate = Rate(5, start, end, ramp_s)
    instant = rate.instant_ns(arrivals)
    assert instant is not None
    assert rate.operational(instant) == pytest.approx(arrivals, rel=1e-6, abs=1e-6)


def test_a_rate_of_zero_pauses_and_a_new_rate_goes_on_from_there():
    loop = OpenLoop(requests(), iter([1.0, 1.0, 1.0, 1.0, 1.0]), Rate(0, 2.0))
    assert loop.next_due_ns() == SECOND // 2
    loop.rate.change(SECOND // 4, 0.0)
    assert loop.next_due_ns() is None and loop.due(100 * SECOND) == []
    loop.rate.change(200 * SECOND, 1.0)
    assert loop.next_due_ns() == 200 * SECOND + SECOND // 2


def test_replay_gives_each_request_at_its_instant():
    rows = list(zip([0, 0, 30, 50], requests(4), strict=True))
    loop = Replay(iter(rows), start_ns=1000)
    assert [due.request.id for due in loop.due(1000)] == ["r-0", "r-1"]
    assert loop.next_due_ns() == 1030 and not loop.draining
    assert [due.due_ns for due in loop.due(1049)] == [1030]
    assert [due.due_ns for due in loop.due(9999)] == [1050]
    assert loop.draining and loop.next_due_ns() is None


def test_the_nth_request_of_a_seed_is_always_the_same():
    one, two = list(requests(5)), list(requests(5))
    assert one == two
    other = list(itertools.islice(random_requests("r", 100, Lengths(2, 4), Lengths(1, 3), seed=2), 5))
    assert [r.prompt for r in other] != [r.prompt for r in one]
    assert all(2 <= len(r.prompt) <= 4 and max(r.prompt) < 100 and 1 <= r.max_tokens <= 3 for r in one)


@pytest.mark.parametrize("text", ["", "0", "5:4", "1:2:3", "x", "-1", "1.5"])
def test_a_length_that_is_none_is_named(text):
    with pytest.raises(ValueError, match="is not a length"):
        Lengths.parse(text)


def test_lengths_are_drawn_from_their_range():
    import random

    drawn = {Lengths.parse("3:5").draw(random.Random(i)) for i in range(50)}
    assert drawn == {3, 4, 5} and str(Lengths.parse("7")) == "7"
