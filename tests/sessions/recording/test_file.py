"""The session file: what is written is read, while it is written and after; every instant can be sought."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessions.codec import encode
from sessions.knobs import Knobs
from sessions.messages import (
    BenchPhase,
    EngineState,
    Fault,
    Goodbye,
    GpuFrame,
    KnobReply,
    KnobState,
    Marker,
    Message,
    QueueFrame,
)
from sessions.recording import meta
from sessions.recording.errors import RecordingError
from sessions.recording.reader import Recording
from sessions.recording.segment import Recorded
from sessions.recording.state import SessionState
from sessions.recording.verify import verify
from sessions.recording.writer import FOLD_NS, RecordingWriter
from tests.sessions.recording.synthetic import START_NS, TICK_NS, WALL_NS, session
from tests.sessions.strategies import messages

ORIGIN = meta.Origin(t_ns=START_NS, wall_ns=WALL_NS, host="host", command_line=["herdscope"], versions={})


def write(path: Path, batches: Iterator[tuple[int, list[Message]]], close: bool = True) -> list[Recorded]:
    writer = RecordingWriter(path, ORIGIN)
    records = []
    for at_ns, batch in batches:
        for message in batch:
            writer.write(at_ns, message)
            records.append(Recorded(at_ns, message))
        writer.commit()
    if close:
        writer.close("done")
    else:
        writer.abandon()
    return records


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Recorded]]:
    path = tmp_path_factory.mktemp("real") / "real.herd"
    return path, write(path, session(100, gpus=2, stages=2, spans_per_second=50))


def known_at(records: list[Recorded], t_ns: int) -> list[Message]:
    return SessionState(record.message for record in records if record.at_ns <= t_ns).messages()


def sought(recording: Recording, t_ns: int) -> list[Message]:
    moment = recording.seek(t_ns)
    return SessionState([*moment.state, *(record.message for record in moment.records)]).messages()


def test_reads_what_was_written(real: tuple[Path, list[Recorded]]) -> None:
    path, records = real
    with Recording(path) as recording:
        assert list(recording.records()) == records
        assert recording.count() == len(records)
        assert recording.extent() == (records[0].at_ns, records[-1].at_ns)
        assert recording.ending is not None
        assert recording.utc_ns(START_NS) == WALL_NS
        assert recording.engine.knobs == Knobs(async_depth=8)
        assert recording.engine.model is not None
        assert list(recording.sources().values()) == [("host", START_NS, WALL_NS)]
        assert recording.problems == []
    assert verify(path).problems == []


def test_a_seek_at_any_instant_equals_a_scan_from_the_start(real: tuple[Path, list[Recorded]]) -> None:
    path, records = real
    with Recording(path) as recording:
        first, last = recording.extent()
        for t_ns in range(first - TICK_NS, last + 2 * TICK_NS, TICK_NS // 2 + 7):
            assert sought(recording, t_ns) == known_at(records, t_ns)


def test_a_seek_never_looks_far_back(real: tuple[Path, list[Recorded]]) -> None:
    path, _ = real
    with Recording(path) as recording:
        first, last = recording.extent()
        for t_ns in range(first, last, TICK_NS):
            moment = recording.seek(t_ns)
            assert all(t_ns - record.at_ns <= FOLD_NS + TICK_NS for record in moment.records)


def test_ranges_and_kinds(real: tuple[Path, list[Recorded]]) -> None:
    path, records = real
    low, high = START_NS + 17 * TICK_NS, START_NS + 71 * TICK_NS
    expected = [r for r in records if low <= r.at_ns <= high and isinstance(r.message, GpuFrame | QueueFrame)]
    with Recording(path) as recording:
        assert list(recording.records(low, high, [GpuFrame, QueueFrame])) == expected
        assert list(recording.records(high, low)) == []


def test_is_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "live.herd"
    writer = RecordingWriter(path, ORIGIN)
    reader = Recording(path)
    written: list[Recorded] = []
    assert list(reader.records()) == []
    for number, (at_ns, batch) in enumerate(session(75, gpus=1, stages=1, spans_per_second=20)):
        for message in batch:
            writer.write(at_ns, message)
            written.append(Recorded(at_ns, message))
        writer.commit()
        if number % 5 == 0:
            assert list(reader.records()) == written
            assert reader.extent()[1] == at_ns
            assert sought(reader, at_ns) == known_at(written, at_ns)
            assert sought(reader, at_ns - 10 * TICK_NS) == known_at(written, at_ns - 10 * TICK_NS)
    assert reader.ending is None
    writer.close("done")
    assert reader.ending == meta.Ending(t_ns=written[-1].at_ns, reason="done")
    assert list(reader.records()) == written
    reader.close()


def test_iteration_goes_on_over_a_fold(tmp_path: Path) -> None:
    """A reader in the middle of the tail when it is folded misses nothing and repeats nothing."""
    path = tmp_path / "live.herd"
    writer = RecordingWriter(path, ORIGIN)
    batches = session(65, gpus=1, stages=1, spans_per_second=10)
    written = []
    reading = Recording(path)
    got: list[Recorded] = []
    iterator: Iterator[Recorded] = iter(())
    for at_ns, batch in batches:
        for message in batch:
            writer.write(at_ns, message)
            written.append(Recorded(at_ns, message))
        writer.commit()
        if at_ns == START_NS + 45 * TICK_NS:
            iterator = reading.records()
            got += [next(iterator) for _ in range(10)]
    got += list(iterator)
    assert got == written[: len(got)]
    assert len(got) >= 45
    writer.close("done")
    reading.close()


@given(st.lists(st.tuples(st.integers(0, 4_000_000_000), messages()), max_size=25), st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_stream_is_read_back_and_sought(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[tuple[int, Message]], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("any") / "x.herd"
    at_ns, batches = START_NS, []
    for gap, message in gaps:
        at_ns += gap
        batches.append((at_ns, [message]))
    records = write(path, iter(batches), close=data.draw(st.booleans()))
    t_ns = data.draw(st.integers(START_NS - 10, at_ns + 10))
    with Recording(path) as recording:
        assert list(recording.records()) == records
        assert sought(recording, t_ns) == known_at(records, t_ns)


def test_marks_of_what_matters(tmp_path: Path) -> None:
    path = tmp_path / "x.herd"
    said: list[Message] = [
        Marker(source="s", t_ns=1, category="note", text="look here"),
        KnobReply(source="s", t_ns=1, id="1", to="c", ok=True, knob="cuda_graphs", applied=True, took_ms=12.4),
        KnobReply(source="s", t_ns=1, id="2", to="c", ok=False, reason="no", knob="async_depth", applied=4),
        Fault(source="s", t_ns=1, what="rank 1", cause="killed"),
        EngineState(source="s", t_ns=1, phase="failed", detail="rank 1 died"),
        Goodbye(source="s", t_ns=1, peer="p", reason="gone", expected=False),
        Goodbye(source="s", t_ns=1, peer="q", reason="bye"),
        BenchPhase(source="s", t_ns=1, run="r", phase="start", progress=0),
        BenchPhase(source="s", t_ns=1, run="r", phase="measure", progress=0.5),
        BenchPhase(source="s", t_ns=1, run="r", phase="point", progress=0.5, concurrency=8),
    ]
    write(path, iter([(START_NS + n, [message]) for n, message in enumerate(said)]))
    with Recording(path) as recording:
        assert [(mark.category, mark.text) for mark in recording.marks()] == [
            ("note", "look here"),
            ("knob", "cuda_graphs = on (12 ms)"),
            ("alert", "rank 1: killed"),
            ("alert", "engine failed: rank 1 died"),
            ("alert", "p is gone: gone"),
            ("bench", "benchmark r start"),
            ("bench", "benchmark r: C=8 done"),
        ]
        assert [mark.t_ns for mark in recording.marks(START_NS + 1, START_NS + 3)] == [START_NS + 1, START_NS + 3]


def test_rollups_are_means_of_each_second(tmp_path: Path) -> None:
    path = tmp_path / "x.herd"
    batches = []
    for number in range(21):
        now = START_NS + number * TICK_NS
        queue = QueueFrame(
            source="s", t_ns=now, waiting=2, running=4, slots=[], in_flight=1, kv_blocks_used=0, kv_blocks=0,
            output_tokens_total=number * 10, prompt_tokens_total=0, steps_total=number, waves_sum=number * 2.0,
            herd_index_sum=number * 0.25, herd_samples=number,
        )  # fmt: skip
        gpus = [GpuFrame(source="s", t_ns=now, index=n, uuid="u", name="g", power_watts=100.0) for n in range(2)]
        batches.append((now, [queue, *gpus]))
    write(path, iter(batches))
    with Recording(path) as recording:
        first, second, last = recording.rollups()
    for rollup in (first, second):
        assert rollup.tokens_per_s == pytest.approx(100)
        assert (rollup.watts, rollup.waves, rollup.herd_index) == (200, 2, 0.25)
        assert (rollup.running, rollup.waiting, rollup.occupancy) == (4, 2, None)
    assert last.t_ns == START_NS + 2_000_000_000


def test_state_forgets_who_left_and_mended_faults() -> None:
    state = SessionState(
        [
            KnobState(source="a", t_ns=1, knobs=Knobs()),
            EngineState(source="a", t_ns=1, phase="failed"),
            Fault(source="a", t_ns=1, what="w", cause="c"),
            KnobState(source="b", t_ns=1, knobs=Knobs()),
            Goodbye(source="hub", t_ns=2, peer="a", reason="r"),
        ]
    )
    assert [type(message) for message in state.messages()] == [EngineState, Fault, KnobState]
    state.update(EngineState(source="a", t_ns=3, phase="ready"))
    assert [type(message) for message in state.messages()] == [KnobState, EngineState]


def test_no_second_writer(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "x.herd", ORIGIN)
    with pytest.raises(RecordingError, match="exists already"):
        RecordingWriter(tmp_path / "x.herd", ORIGIN)
    writer.write(START_NS, message := Marker(source="s", t_ns=1, category="note", text="t"))
    writer.close("done")
    with Recording(tmp_path / "x.herd") as recording:
        assert [record.message for record in recording.records()] == [message]


def test_secrets_stay_out_of_the_file(tmp_path: Path) -> None:
    origin = meta.origin(["herdscope", "run", "--broker-password", "hunter2", "--broker", "mqtt://me:hunter2@host"])
    RecordingWriter(tmp_path / "x.herd", origin).close("done")
    assert b"hunter2" not in (tmp_path / "x.herd").read_bytes()


def test_encoded_bytes_are_the_channel_s(real: tuple[Path, list[Recorded]]) -> None:
    path, records = real
    with Recording(path) as recording:
        assert [encode(r.message) for r in recording.records()] == [encode(r.message) for r in records]
