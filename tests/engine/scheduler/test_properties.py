"""Whatever happens and in whatever order, the scheduler keeps its promises."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.plan import MicroBatchPlan
from engine.scheduler.limits import Limits, refusal
from engine.scheduler.request import Request, State
from engine.scheduler.scheduler import Scheduler
from sessions.knobs import ADMISSIONS, Admission, Knobs
from sessions.messages import RequestSpec

from .model import EOS, VOCAB, Workers, expected_output


class SchedulerMachine(RuleBasedStateMachine):
    """Submits, cancels, turns knobs, and delivers results at random, against a model of the workers."""

    @initialize(
        kv_blocks=st.integers(3, 40),
        block_size=st.sampled_from([1, 2, 4]),
        max_running=st.integers(1, 12),
        token_budget=st.integers(1, 24),
        run_ahead=st.integers(0, 2),
        admission=st.sampled_from(ADMISSIONS),
        depth=st.integers(1, 5),
        most=st.integers(1, 8),
    )
    def start(
        self,
        kv_blocks: int,
        block_size: int,
        max_running: int,
        token_budget: int,
        run_ahead: int,
        admission: Admission,
        depth: int,
        most: int,
    ) -> None:
        self.limits = Limits(kv_blocks=kv_blocks, block_size=block_size, vocab=VOCAB, eos=frozenset([EOS]))
        self.scheduler, self.twin = (
            Scheduler(
                Knobs(async_depth=depth, admission=admission, max_micro_batch=most),
                self.limits,
                token_budget=token_budget,
                max_running=max_running,
                run_ahead=run_ahead,
            )
            for _ in range(2)
        )
        self.workers = Workers(kv_blocks, block_size, max_running)
        self.requests: dict[str, tuple[Request, Request]] = {}
        self.streams: dict[str, list[int]] = {}
        self.ended: dict[str, str] = {}

    @rule(
        lengths=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 12), st.integers(0, 1)), min_size=1, max_size=6),
        seed=st.integers(0, 1000),
        ignore_eos=st.booleans(),
    )
    def submit(self, lengths: list[tuple[int, int, int]], seed: int, ignore_eos: bool) -> None:
        for prompt_length, max_tokens, priority in lengths:
            name = f"r{len(self.requests)}"
            prompt = [(seed + 13 * i * i + len(self.requests)) % VOCAB for i in range(prompt_length)]
            spec = RequestSpec(name, prompt, max_tokens, priority=priority, ignore_eos=ignore_eos)
            if refusal(spec, prompt, self.limits) is not None:
                continue
            stop = frozenset() if ignore_eos else self.limits.eos
            pair = (Request(spec, prompt, stop), Request(spec, prompt, stop))
            self.requests[name] = pair
            self.streams[name] = []
            self.scheduler.add(pair[0])
            self.twin.add(pair[1])

    @precondition(lambda self: len(self.ended) < len(self.requests))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([name for name in self.requests if name not in self.ended]))
        for scheduler, request in zip((self.scheduler, self.twin), self.requests[name], strict=True):
            scheduler.cancel(request)
        self.ended[name] = "cancelled"

    @rule(depth=st.integers(1, 6), admission=st.sampled_from(ADMISSIONS), most=st.integers(1, 8))
    def turn_knobs(self, depth: int, admission: Admission, most: int) -> None:
        knobs = Knobs(async_depth=depth, admission=admission, max_micro_batch=most)
        self.scheduler.set_knobs(knobs)
        self.twin.set_knobs(knobs)

    @rule(count=st.integers(1, 8))
    def plan(self, count: int) -> None:
        for _ in range(count):
            if not self.plan_one():
                break

    @rule(count=st.integers(1, 6))
    def deliver(self, count: int) -> None:
        for _ in range(count):
            if not self.deliver_one():
                break

    @rule(kv_blocks=st.integers(3, 40))
    def recompute(self, kv_blocks: int) -> None:
        """As after a change of parallelism: everything in flight completes, then rows and cache are new."""
        while self.deliver_one():
            pass
        self.limits = Limits(kv_blocks=kv_blocks, block_size=self.limits.block_size, vocab=VOCAB, eos=frozenset([EOS]))
        running = self.scheduler.running.count
        for scheduler in (self.scheduler, self.twin):
            recomputed, unfit = scheduler.recompute_all(self.limits)
            assert recomputed == running
        for request, why in unfit:
            assert "KV cache" in why
            self.ended[request.id] = "failed"
        self.workers.rows.clear()
        self.workers.kv_blocks = kv_blocks

    def plan_one(self) -> bool:
        scheduler = self.scheduler
        before = scheduler.in_flight
        live = min(scheduler.live, scheduler.max_running)
        was_busy = {slot.index for slot in scheduler.running.slots if slot.busy}
        plan = scheduler.next_plan()
        assert plan == self.twin.next_plan(), "the same calls must give the same plan"
        if plan is None:
            return False
        self.workers.submit(plan)
        self.check_caps(plan, before, live, plan.slot in was_busy)
        return True

    def check_caps(self, plan: MicroBatchPlan, before: int, live: int, ahead: bool) -> None:
        scheduler, knobs = self.scheduler, self.scheduler.knobs
        assert plan.prefill_tokens <= scheduler.token_budget
        assert len(plan.decode) + len(plan.prefill) <= knobs.max_micro_batch
        if not ahead:
            assert before < knobs.async_depth, "more micro-batches in flight than the async depth"
        slot = scheduler.running.slots[plan.slot]
        assert len(slot.outstanding) <= 1 + scheduler.run_ahead
        assert slot.live <= knobs.max_micro_batch
        if knobs.admission == "capped":
            assert len(plan.decode) + len(plan.prefill) <= -(-live // knobs.async_depth)
        if plan.admit and len(scheduler.waiting):
            last = max(
                request.order for request in slot.prefilling | slot.decoding if request.row == plan.admit[-1].row
            )
            assert last < scheduler.waiting.head().order, "a later request of a priority overtook an earlier one"

    def deliver_one(self) -> bool:
        result = self.workers.collect()
        if result is None:
            return False
        completion = self.scheduler.complete(result)
        twin = self.twin.complete(result)
        assert completion.events == twin.events
        for event in completion.events:
            assert event.request not in self.ended, "a token of a request that has ended"
            self.streams[event.request] += event.tokens
        for request in completion.finished:
            assert request.reason in ("stop", "length")
            assert request.id not in self.ended
            self.ended[request.id] = request.reason
        return True

    @invariant()
    def nothing_is_lost_or_leaked(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        scheduler = self.scheduler
        running = scheduler.running
        assert scheduler.live == len(self.requests) - len(self.ended)
        holders = [pair[0] for pair in self.requests.values() if pair[0].row >= 0]
        blocks = [block for request in holders for block in request.blocks]
        assert len(blocks) == len(set(blocks)) == running.blocks.used
        rows = [request.row for request in holders]
        assert len(rows) == len(set(rows)) == running.rows.used
        groups = [running.pool, *running.slots, *running.retired.values()]
        members = [request for group in groups for part in (group.decoding, group.prefilling) for request in part]
        assert len(members) == len(set(members)) == running.count
        assert all(request.state is State.RUNNING for request in members)
        assert all(request.group in groups for request in members)
        assert running.starved <= set(members)
        assert scheduler.waiting.tokens == sum(len(request.tokens) for request in scheduler.waiting.requests())
        assert running.prompt_tokens == sum(r.known - r.position for group in groups for r in group.prefilling)

    def teardown(self) -> None:
        """Everything ends, and with the tokens that the model says."""
        if not hasattr(self, "scheduler"):
            return
        while self.scheduler.live or self.workers.results:
            planned = self.plan_one()
            delivered = self.deliver_one()
            assert planned or delivered, "live requests, nothing in flight and nothing planned"
        self.nothing_is_lost_or_leaked()
        assert self.scheduler.running.blocks.used == 0
        assert set(self.ended) == set(self.requests)
        for name, (request, _) in self.requests.items():
            spec = request.spec
            assert isinstance(spec.prompt, list)
            whole = expected_output(spec.prompt, spec.max_tokens, spec.ignore_eos)
            if self.ended[name] in ("cancelled", "failed"):
                assert self.streams[name] == whole[: len(self.streams[name])]
            else:
                assert self.streams[name] == whole
                stopped = whole[-1] == EOS and not spec.ignore_eos
                assert self.ended[name] == ("stop" if stopped else "length")


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
