"""Single decisions of the scheduler, each set up by hand."""

from __future__ import annotations

import pytest

from engine.plan import MicroBatchPlan, MicroBatchResult
from engine.scheduler.admission import POLICIES, Load
from engine.scheduler.blocks import FreeList
from engine.scheduler.limits import Limits
from engine.scheduler.request import Request, State
from engine.scheduler.scheduler import Scheduler
from sessions.knobs import Admission, Knobs
from sessions.messages import RequestSpec


def scheduler(
    admission: Admission = "greedy",
    depth: int = 2,
    most: int = 256,
    kv_blocks: int = 100,
    token_budget: int = 100,
    run_ahead: int = 0,
    max_running: int = 64,
) -> Scheduler:
    return Scheduler(
        Knobs(async_depth=depth, admission=admission, max_micro_batch=most),
        Limits(kv_blocks=kv_blocks, block_size=4),
        token_budget=token_budget,
        max_running=max_running,
        run_ahead=run_ahead,
    )


def add(to: Scheduler, name: str, prompt: int = 3, max_tokens: int = 50, priority: int = 0) -> Request:
    request = Request(RequestSpec(name, [1] * prompt, max_tokens, priority=priority), [1] * prompt)
    to.add(request)
    return request


def plan(of: Scheduler) -> MicroBatchPlan:
    made = of.next_plan()
    assert made is not None
    return made


def complete(on: Scheduler, made: MicroBatchPlan, token: int = 5) -> list[Request]:
    tokens = [token] * len(made.sampled_rows)
    return on.complete(MicroBatchResult(made.step, made.slot, tokens, 0)).finished


def test_greedy_takes_everything_that_waits_into_the_first_free_slot() -> None:
    s = scheduler("greedy", depth=4)
    for i in range(10):
        add(s, f"r{i}")
    assert len(plan(s).prefill) == 10
    assert s.next_plan() is None


def test_greedy_stops_at_the_cap_and_at_the_token_budget() -> None:
    s = scheduler("greedy", depth=4, most=6, token_budget=14)
    for i in range(10):
        add(s, f"r{i}")
    first, second = plan(s), plan(s)
    assert [chunk.length for chunk in first.prefill] == [3, 3, 3, 3, 2]
    assert [chunk.last for chunk in first.prefill] == [True] * 4 + [False]
    assert len(second.prefill) == 5
    complete(s, first)
    again = plan(s)
    assert len(again.decode) == 4 and [(c.start, c.length, c.last) for c in again.prefill] == [(2, 1, True)]


def test_capped_gives_every_slot_its_even_share() -> None:
    s = scheduler("capped", depth=4)
    for i in range(10):
        add(s, f"r{i}")
    assert [len(plan(s).prefill) for _ in range(4)] == [3, 3, 3, 1]


def test_decode_cap_spreads_what_one_slot_has_prefilled() -> None:
    s = scheduler("decode-cap", depth=4)
    for i in range(8):
        add(s, f"r{i}")
    first = plan(s)
    assert len(first.prefill) == 8 and s.next_plan() is None
    complete(s, first)
    assert [len(plan(s).decode) for _ in range(4)] == [2, 2, 2, 2]


def test_rebalance_spreads_long_prompts_in_chunks() -> None:
    s = scheduler("rebalance", depth=4, token_budget=64, kv_blocks=1000)
    for i in range(4):
        add(s, f"r{i}", prompt=100)
    plans = [plan(s) for _ in range(4)]
    assert [p.prefill_tokens for p in plans] == [64, 64, 64, 52]
    assert all(len({c.row for c in p.prefill}) == len(p.prefill) for p in plans)


def test_rebalance_moves_the_remainder_over_the_slots() -> None:
    shares = [
        POLICIES["rebalance"].quota(Load(4, 18, 18, 0, turn, max_micro_batch=64, token_budget=64)).decodes
        for turn in range(4)
    ]
    assert sorted(shares) == [4, 4, 5, 5]


def test_lower_priority_number_runs_first_and_arrival_decides_within_it() -> None:
    s = scheduler(most=2, depth=1)
    for name, priority in (("late", 1), ("a", 0), ("b", 0), ("urgent", -1)):
        add(s, name, priority=priority)
    plan(s)
    assert [request.id for request in s.running.slots[0].decoding] == ["urgent", "a"]


def test_a_length_limited_request_never_gets_a_surplus_step() -> None:
    s = scheduler(depth=1, run_ahead=3)
    add(s, "r", max_tokens=3)
    plans = [plan(s) for _ in range(3)]
    assert [len(p.decode) for p in plans] == [0, 1, 1]
    assert s.next_plan() is None
    assert [complete(s, p) != [] for p in plans] == [False, False, True]


def test_a_late_stop_drops_the_surplus_token_and_frees_the_row_after_it() -> None:
    s = scheduler(depth=1, run_ahead=1)
    request = Request(RequestSpec("r", [1], 9), [1], frozenset([7]))
    s.add(request)
    first, ahead = plan(s), plan(s)
    assert complete(s, first, token=7) == [request]
    assert s.running.rows.used == 1, "the step ahead still uses the row"
    done = s.complete(MicroBatchResult(ahead.step, ahead.slot, [8], 0))
    assert done.events == [] and done.finished == []
    assert s.running.rows.used == 0 and s.running.blocks.used == 0
    assert request.tokens == [1, 7]


def test_slots_run_ahead_in_turn_so_that_none_holds_up_the_others() -> None:
    s = scheduler("capped", depth=4, run_ahead=2)
    for i in range(8):
        add(s, f"r{i}")
    submitted = [plan(s) for _ in range(12)]
    assert [made.slot for made in submitted] == [0, 1, 2, 3] * 3
    assert s.next_plan() is None
    for made in submitted[:4]:
        complete(s, made)
    assert [plan(s).slot for _ in range(4)] == [0, 1, 2, 3]


def test_no_slot_runs_ahead_of_one_that_cannot() -> None:
    s = scheduler("capped", depth=2, run_ahead=1)
    add(s, "ends at its next token", max_tokens=1)
    add(s, "goes on")
    first, second = plan(s), plan(s)
    assert s.next_plan() is None, "behind a step of the second slot, the first slot's next requests would wait"
    complete(s, first)
    assert plan(s).slot == second.slot


def test_run_ahead_counts_as_one_micro_batch_in_flight() -> None:
    s = scheduler("capped", depth=2, run_ahead=1)
    for i in range(4):
        add(s, f"r{i}")
    slots = [plan(s).slot for _ in range(4)]
    assert sorted(slots) == [0, 0, 1, 1]
    assert (s.in_flight, s.outstanding) == (2, 4)
    assert s.next_plan() is None


def test_the_youngest_is_preempted_and_recomputed_with_its_output() -> None:
    s = scheduler(depth=1, kv_blocks=4)
    first, second = add(s, "first", prompt=4, max_tokens=12), add(s, "second", prompt=4, max_tokens=8)
    for _ in range(5):
        complete(s, plan(s))
    complete(s, plan(s))
    assert second.state is State.WAITING and first.state is State.RUNNING
    assert s.preempted_total == 1
    while first.state is not State.FINISHED:
        complete(s, plan(s))
    again = plan(s)
    assert again.admit[0].tokens == [1] * 4 + [5] * second.output_tokens


def test_nobody_in_a_slot_and_no_free_block_ends_in_preemption_of_who_holds_the_slot() -> None:
    """One place in one slot, held by the later request, while the earlier one holds blocks outside of any slot."""
    s = scheduler("greedy", depth=2, most=1, kv_blocks=4)
    early, late = add(s, "early", prompt=7, max_tokens=6), add(s, "late", prompt=7, max_tokens=6)
    complete(s, plan(s))
    complete(s, plan(s))
    s.set_knobs(Knobs(async_depth=1, max_micro_batch=1))
    s.running.slots[0].move_all(s.running.pool)
    s.running.pool.decoding = {late: None, early: None}
    while early.state is not State.FINISHED or late.state is not State.FINISHED:
        complete(s, plan(s))
    assert s.preempted_total >= 1
    assert early.output_tokens == late.output_tokens == 6


def test_slots_that_go_and_come_back_while_their_steps_are_outstanding() -> None:
    s = scheduler("capped", depth=3)
    for i in range(3):
        add(s, f"r{i}")
    plans = [plan(s) for _ in range(3)]
    s.set_knobs(Knobs(async_depth=1, admission="capped"))
    assert s.in_flight == 3 and s.next_plan() is None
    s.set_knobs(Knobs(async_depth=2, admission="capped"))
    for made in plans:
        complete(s, made)
    assert s.in_flight == 0
    assert s.running.count == 3


def test_results_out_of_turn_are_refused() -> None:
    s = scheduler(depth=1, run_ahead=1)
    add(s, "r")
    first, ahead = plan(s), plan(s)
    with pytest.raises(ValueError, match="not the oldest"):
        complete(s, ahead)
    with pytest.raises(ValueError, match="2 tokens for 1 rows"):
        s.complete(MicroBatchResult(first.step, 0, [1, 2], 0))
    complete(s, first)


def test_free_list_hands_out_each_once() -> None:
    free = FreeList(4)
    taken = free.take(3)
    assert taken == [0, 1, 2] and (free.used, free.free) == (3, 1)
    with pytest.raises(IndexError):
        free.take(2)
    free.give([1])
    assert sorted(free.take(2)) == [1, 3] and free.used == 4


def test_steps_of_removed_slots_still_count_as_in_flight() -> None:
    s = scheduler("capped", depth=3)
    for i in range(3):
        add(s, f"r{i}")
    plans = [plan(s) for _ in range(3)]
    complete(s, plans[0])
    s.set_knobs(Knobs(async_depth=1, admission="capped"))
    assert s.running.slots[0].live == 1 and s.next_plan() is None
    complete(s, plans[1])
    complete(s, plans[2])
    assert len(plan(s).decode) == 3


def test_a_later_request_never_preempts_an_earlier_one() -> None:
    """The later one needs a block while the earlier holds some outside of any slot: it sits out, then gives way."""
    s = scheduler("greedy", depth=2, most=1, kv_blocks=4)
    early, late = add(s, "early", prompt=8, max_tokens=4), add(s, "late", prompt=8, max_tokens=4)
    admitted = []
    for _ in range(2):
        made = plan(s)
        admitted += [row.row for row in made.admit]
        complete(s, made)
    s.set_knobs(Knobs(async_depth=1, max_micro_batch=1))
    s.running.slots[0].move_all(s.running.pool)
    s.running.pool.decoding = {late: None, early: None}
    made = plan(s)
    assert [row.row for row in made.decode] == [early.row]
    assert (early.state, late.state) == (State.RUNNING, State.WAITING)


def test_while_a_decode_lacks_a_block_nothing_is_admitted_and_no_slot_runs_ahead() -> None:
    s = scheduler("capped", depth=2, run_ahead=1)
    running = [add(s, "a"), add(s, "b")]
    plan(s), plan(s)
    add(s, "waits")
    s.running.starved.add(running[0])
    assert not s.running.fits(s.waiting.head())
    assert s.next_plan() is None
    s.running.starved.clear()
    assert s.running.fits(s.waiting.head())
    assert s.next_plan() is not None


def test_a_hundredth_of_the_blocks_is_left_for_those_that_run() -> None:
    s = scheduler(depth=2, kv_blocks=200, token_budget=10_000, most=1)
    add(s, "fills", prompt=4 * 150, max_tokens=4)
    add(s, "waits", prompt=4 * 49, max_tokens=4)
    plan(s)
    assert s.next_plan() is None
    s.set_knobs(Knobs(async_depth=2, max_micro_batch=2))
    fits = add(s, "fits", prompt=4 * 48, max_tokens=4, priority=-1)
    assert [chunk.row for chunk in plan(s).prefill] == [fits.row]
