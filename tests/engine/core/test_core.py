"""The engine core against a checked pipeline in virtual time."""

from __future__ import annotations

import random

import pytest

from engine.config import EngineConfig
from engine.core import EngineCore
from sessions.knobs import ADMISSIONS, Admission, KnobName, Knobs, KnobValue
from sessions.messages import (
    CancelRequests,
    EngineState,
    Finished,
    KnobReply,
    KnobRequest,
    KnobState,
    Message,
    ProfileReply,
    ProfileRequest,
    QueueFrame,
    Reply,
    RequestSpec,
    StageFrame,
    SubmitRequests,
    TokenFrame,
)

from ..pipeline_executor import PipelineExecutor, VirtualClock
from ..scheduler.model import VOCAB, expected_output

DEFAULTS = Knobs()


class Engine:
    """A core, and what it has said."""

    def __init__(self, knobs: Knobs = DEFAULTS, **options: object) -> None:
        executor_options = {
            name: options.pop(name)
            for name in ("stages", "max_run_ahead", "unavailable", "kv_blocks_under_ep")
            if name in options
        }
        config = EngineConfig(model="test", knobs=knobs, **options)  # type: ignore[arg-type]
        self.clock = VirtualClock()
        self.executor = PipelineExecutor(config, self.clock, **executor_options)  # type: ignore[arg-type]
        self.core = EngineCore(config, self.executor, self.clock, source="engine")
        self.messages: list[Message] = []
        self.commands = 0

    def submit(self, specs: list[RequestSpec], asker: str = "bench") -> None:
        self.commands += 1
        self.core.handle(SubmitRequests(source=asker, t_ns=0, id=f"c{self.commands}", requests=specs))

    def turn(self, knob: KnobName, value: KnobValue) -> None:
        self.commands += 1
        self.core.handle(KnobRequest(source="console", t_ns=0, id=f"c{self.commands}", knob=knob, value=value))

    def step(self) -> None:
        self.messages += self.core.step(0.1)

    def run(self, most_steps: int = 100_000) -> None:
        for _ in range(most_steps):
            if self.core.idle:
                return
            self.step()
        raise AssertionError("the engine does not come to rest")

    def of(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.messages if type(message) is kind]

    @property
    def streams(self) -> dict[str, list[int]]:
        streams: dict[str, list[int]] = {}
        for frame in self.of(TokenFrame):
            assert isinstance(frame, TokenFrame)
            for event in frame.events:
                streams.setdefault(event.request, []).extend(event.tokens)
        return streams

    @property
    def finished(self) -> dict[str, Finished]:
        ends = [end for frame in self.of(TokenFrame) if isinstance(frame, TokenFrame) for end in frame.finished]
        assert len({end.request for end in ends}) == len(ends), "a request has one end"
        return {end.request: end for end in ends}


def short_prompts(count: int, max_tokens: int = 30, ignore_eos: bool = True) -> list[RequestSpec]:
    return [RequestSpec(f"r{i}", [i % VOCAB, 3, 5], max_tokens, ignore_eos=ignore_eos) for i in range(count)]


def waves_of(engine: Engine) -> float:
    frame = engine.core.meter.frame(engine.core.scheduler, "", 0)
    return frame.waves_sum / frame.herd_samples


def check_outputs(engine: Engine, specs: list[RequestSpec]) -> None:
    for spec in specs:
        assert isinstance(spec.prompt, list)
        assert engine.streams[spec.id] == expected_output(spec.prompt, spec.max_tokens, spec.ignore_eos)
        assert engine.finished[spec.id].output_tokens == len(engine.streams[spec.id])


@pytest.mark.parametrize("run_ahead", [0, 1])
def test_a_burst_stays_one_herd_under_greedy_and_spreads_under_the_others(run_ahead: int) -> None:
    waves: dict[Admission, float] = {}
    for admission in ADMISSIONS:
        engine = Engine(Knobs(async_depth=4, admission=admission), max_run_ahead=run_ahead)
        specs = short_prompts(16, max_tokens=64)
        engine.submit(specs)
        engine.run()
        check_outputs(engine, specs)
        waves[admission] = waves_of(engine)
    assert waves["greedy"] < 1.3
    assert waves["rebalance"] > 3.5
    assert waves["capped"] > 3.5
    assert waves["decode-cap"] > 3.5


def test_rebalance_is_faster_than_greedy_where_a_stage_costs_the_same_whatever_the_batch() -> None:
    """Four stages of fixed cost: one herd completes a micro-batch a lap, four slots complete four."""
    rates = {}
    for admission in ("greedy", "rebalance"):
        engine = Engine(Knobs(async_depth=4, admission=admission), stages=4)
        engine.submit(short_prompts(16, max_tokens=64))
        engine.run()
        rates[admission] = engine.core.scheduler.steps_total
    assert rates["rebalance"] > 3 * rates["greedy"]


def test_turning_admission_breaks_a_herd_that_is_running() -> None:
    engine = Engine(Knobs(async_depth=4, admission="greedy"))
    engine.submit(short_prompts(16, max_tokens=400))
    for _ in range(50):
        engine.step()
    assert sorted(engine.core.scheduler.decode_counts()) == [0, 0, 0, 16]
    engine.turn("admission", "rebalance")
    for _ in range(12):
        engine.step()
    assert sorted(engine.core.scheduler.decode_counts()) == [4, 4, 4, 4]
    reply = engine.of(KnobReply)[0]
    assert isinstance(reply, KnobReply) and reply.ok and reply.applied == "rebalance" and reply.preempted == 0


def test_new_slots_start_empty_under_greedy() -> None:
    engine = Engine(Knobs(async_depth=1))
    engine.submit(short_prompts(8, max_tokens=200))
    for _ in range(20):
        engine.step()
    engine.turn("async_depth", 4)
    for _ in range(20):
        engine.step()
    assert engine.core.scheduler.decode_counts() == [8, 0, 0, 0]


def test_one_slot_fewer_moves_its_requests() -> None:
    engine = Engine(Knobs(async_depth=4, admission="capped"))
    specs = short_prompts(8, max_tokens=100)
    engine.submit(specs)
    for _ in range(40):
        engine.step()
    engine.turn("async_depth", 2)
    for _ in range(40):
        engine.step()
    assert engine.core.scheduler.decode_counts() == [4, 4]
    engine.run()
    check_outputs(engine, specs)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("run_ahead", [0, 1])
def test_outputs_do_not_depend_on_knobs_turned_while_requests_run(seed: int, run_ahead: int) -> None:
    rng = random.Random(seed)
    engine = Engine(
        Knobs(async_depth=4), kv_blocks=60, block_size=4, token_budget=16, run_ahead=run_ahead, max_run_ahead=1
    )
    specs = [
        RequestSpec(f"r{i}", [rng.randrange(VOCAB) for _ in range(rng.randint(1, 60))], rng.randint(1, 40))
        for i in range(32)
    ]
    engine.submit(specs)
    choices: list[tuple[KnobName, list[KnobValue]]] = [
        ("async_depth", [1, 2, 4, 8]),
        ("admission", list(ADMISSIONS)),
        ("max_micro_batch", [1, 4, 32]),
        ("cuda_graphs", [True, False]),
        ("parallelism", ["pp", "ep"]),
    ]
    while not engine.core.idle:
        engine.step()
        if rng.random() < 0.2:
            knob, values = rng.choice(choices)
            engine.turn(knob, rng.choice(values))
        assert len(engine.messages) < 200_000
    check_outputs(engine, specs)
    replies = engine.of(KnobReply)
    assert len(replies) == engine.commands - 1
    assert all(isinstance(reply, KnobReply) and reply.ok for reply in replies)


def test_parallelism_drains_and_recomputes_everything_that_runs() -> None:
    engine = Engine(Knobs(async_depth=2))
    specs = short_prompts(5, max_tokens=50)
    engine.submit(specs)
    for _ in range(10):
        engine.step()
    engine.turn("parallelism", "ep")
    engine.run()
    reply = engine.of(KnobReply)[0]
    assert isinstance(reply, KnobReply)
    assert (reply.ok, reply.applied, reply.preempted) == (True, "ep", 5)
    assert reply.took_ms > 0
    assert [s.phase for s in engine.of(EngineState) if isinstance(s, EngineState)] == ["switching", "ready"]
    assert [s.knobs.parallelism for s in engine.of(KnobState) if isinstance(s, KnobState)] == ["ep"]
    check_outputs(engine, specs)


def test_graphs_are_turned_while_micro_batches_are_in_flight() -> None:
    engine = Engine(Knobs(async_depth=2))
    specs = short_prompts(5, max_tokens=50)
    engine.submit(specs)
    for _ in range(10):
        engine.step()
    assert engine.core.scheduler.outstanding
    engine.turn("cuda_graphs", "off" if engine.core.knob_state().knobs.cuda_graphs else "on")
    engine.step()
    reply = engine.of(KnobReply)[0]
    assert isinstance(reply, KnobReply) and reply.ok
    assert engine.core.scheduler.outstanding
    assert not engine.of(EngineState), "nothing switches"
    engine.run()
    check_outputs(engine, specs)


def test_requests_that_the_switched_engine_cannot_hold_end_with_the_reason() -> None:
    engine = Engine(Knobs(async_depth=2), kv_blocks=100, block_size=4, kv_blocks_under_ep=10)
    engine.submit(
        [RequestSpec("small", [1, 2], 20, ignore_eos=True), RequestSpec("large", [1] * 50, 20, ignore_eos=True)]
    )
    for _ in range(6):
        engine.step()
    engine.turn("parallelism", "ep")
    engine.run()
    assert engine.finished["small"].reason == "length"
    assert engine.finished["large"].reason == "failed"
    assert "KV cache holds 40" in engine.finished["large"].detail


def test_knobs_are_refused_with_the_reason_and_change_nothing() -> None:
    engine = Engine(unavailable={"cuda_graphs": "no CUDA device"})
    engine.turn("cuda_graphs", "on")
    engine.turn("cuda_graphs", "off")
    engine.turn("async_depth", 0)
    engine.turn("admission", "fair")
    engine.turn("max_micro_batch", 13)
    engine.turn("parallelism", "ep")
    engine.run()
    replies = [r for r in engine.of(KnobReply) if isinstance(r, KnobReply)]
    assert [r.ok for r in replies] == [False, True, False, False, True, False]
    assert "no CUDA device" in replies[0].reason
    assert "1 to 64" in replies[2].reason and replies[2].applied == 1
    assert "greedy, capped" in replies[3].reason
    assert "13" in replies[5].reason and replies[5].applied == "pp"
    assert engine.core.knob_state().knobs == Knobs(max_micro_batch=13)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (RequestSpec("r", [], 4), "empty"),
        (RequestSpec("r", [1], 0), "max_tokens"),
        (RequestSpec("r", [1, VOCAB], 4), "vocabulary"),
        (RequestSpec("r", [-1], 4), "vocabulary"),
        (RequestSpec("r", [1] * 30, 12), "KV cache holds 40"),
        (RequestSpec("r", [1] * 20, 17), "context holds 36"),
        (RequestSpec("r", [1], 4, temperature=-1.0), "temperature"),
        (RequestSpec("r", [1], 4, top_p=0.0), "top_p"),
        (RequestSpec("r", "text", 4), "tokenizer"),
        (RequestSpec("r", [1], 4, stop=["x"]), "tokenizer"),
    ],
)
def test_a_request_that_can_never_run_is_refused_at_once(spec: RequestSpec, why: str) -> None:
    engine = Engine(kv_blocks=10, block_size=4, max_context=60 if "KV" in why else 36)
    engine.submit([spec])
    engine.step()
    assert engine.finished["r"].reason == "refused"
    assert why in engine.finished["r"].detail
    assert [type(message) for message in engine.messages][:2] == [TokenFrame, Reply], "who has the reply knows it"
    assert engine.core.idle


def test_a_request_that_just_fits_runs() -> None:
    engine = Engine(kv_blocks=10, block_size=4)
    specs = [RequestSpec("r", [1] * 30, 11, ignore_eos=True)]
    engine.submit(specs)
    engine.run()
    check_outputs(engine, specs)


def test_an_id_in_use_refuses_the_whole_message() -> None:
    engine = Engine()
    engine.submit(short_prompts(2, max_tokens=5))
    engine.submit([RequestSpec("new", [1], 2), RequestSpec("r1", [1], 2)])
    engine.submit([RequestSpec("twin", [1], 2), RequestSpec("twin", [1], 2)])
    engine.run()
    replies = [r for r in engine.of(Reply) if isinstance(r, Reply)]
    assert [r.ok for r in replies] == [True, False, False]
    assert "r1" in replies[1].reason
    assert set(engine.finished) == {"r0", "r1"}


def test_cancel_by_name_and_of_an_asker() -> None:
    engine = Engine(Knobs(async_depth=2), max_run_ahead=1)
    engine.submit(short_prompts(4, max_tokens=100))
    engine.submit([RequestSpec("other", [1], 20, ignore_eos=True)], asker="console")
    for _ in range(12):
        engine.step()
    engine.core.handle(CancelRequests(source="bench", t_ns=0, id="x", requests=["r1", "r1", "unknown"]))
    engine.step()
    assert engine.finished["r1"].reason == "cancelled"
    assert engine.finished["r1"].output_tokens == len(engine.streams["r1"])
    engine.core.abandon("bench")
    engine.run()
    ends = {name: end.reason for name, end in engine.finished.items()}
    assert ends == {**dict.fromkeys(["r0", "r1", "r2", "r3"], "cancelled"), "other": "length"}
    assert engine.core.scheduler.running.blocks.used == 0


def test_frames_come_at_ten_hertz_with_exact_totals() -> None:
    engine = Engine(Knobs(async_depth=4, admission="rebalance"))
    specs = short_prompts(8, max_tokens=300)
    start = engine.clock.ns
    engine.submit(specs)
    engine.run()
    for _ in range(3):
        engine.step()
    frames = [f for f in engine.of(QueueFrame) if isinstance(f, QueueFrame)]
    seconds = (engine.clock.ns - start) / 1e9
    assert abs(len(frames) - seconds * 10) <= 2
    last = frames[-1]
    assert (last.waiting, last.running, last.in_flight, last.kv_blocks_used) == (0, 0, 0, 0)
    assert last.output_tokens_total == 8 * 300
    assert last.prompt_tokens_total == 8 * 3
    assert last.finished_total == 8
    spans = [span for frame in engine.of(StageFrame) if isinstance(frame, StageFrame) for span in frame.spans]
    assert len(spans) == last.steps_total * 4
    assert all(frame.source == "engine" for frame in engine.of(StageFrame))


def test_profile_counts_its_steps_and_answers_with_the_traces() -> None:
    engine = Engine()
    engine.submit(short_prompts(2, max_tokens=100))
    for _ in range(40):
        engine.step()
    engine.core.handle(ProfileRequest(source="console", t_ns=0, id="p", steps=10, folder="traces"))
    engine.core.handle(ProfileRequest(source="console", t_ns=0, id="q", steps=10, folder="traces"))
    engine.run()
    replies = {r.id: r for r in engine.of(ProfileReply) if isinstance(r, ProfileReply)}
    assert not replies["q"].ok and "already" in replies["q"].reason
    assert replies["p"].traces == [f"traces/rank{rank}.json" for rank in range(4)]
    assert replies["p"].tokens_per_s_profiled == pytest.approx(500, rel=0.1)
    assert replies["p"].tokens_per_s_before == pytest.approx(500, rel=0.1)


def test_same_commands_same_messages() -> None:
    def run() -> list[Message]:
        engine = Engine(Knobs(async_depth=4, admission="rebalance"), max_run_ahead=1, kv_blocks=40, block_size=4)
        engine.submit(short_prompts(20, ignore_eos=False))
        engine.run()
        return engine.messages

    assert run() == run()
