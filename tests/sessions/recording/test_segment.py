"""A folded segment gives back exactly the messages that went in, whatever they are."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sessions.codec import encode
from sessions.messages import GpuFrame, Marker, Message, QueueFrame, StageFrame
from sessions.recording.columns import pack_column, pack_integers, unpack_column, unpack_integers
from sessions.recording.segment import DamagedSegment, Recorded, fold, unfold
from tests.sessions.recording.synthetic import START_NS, TICK_NS, session
from tests.sessions.strategies import messages

_ARRIVALS = st.lists(st.integers(0, 2**40), max_size=30).map(sorted)
_INT64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def streams(draw: st.DrawFn, *kinds: type[Message]) -> list[Recorded]:
    arrivals = draw(_ARRIVALS)
    return [Recorded(at, draw(messages(*kinds))) for at in arrivals]


def folded(records: list[Recorded]) -> bytes:
    return fold([(record.at_ns, encode(record.message)) for record in records])


@given(streams())
@settings(max_examples=80, deadline=None)
def test_any_stream_comes_back(records: list[Recorded]) -> None:
    assert unfold(folded(records)).records == records


@given(streams(StageFrame, GpuFrame, QueueFrame))
@settings(max_examples=80, deadline=None)
def test_any_stream_of_frames_comes_back(records: list[Recorded]) -> None:
    assert unfold(folded(records)).records == records


@given(streams(StageFrame, GpuFrame, QueueFrame), st.integers(-1, 2**40 + 1))
@settings(max_examples=80, deadline=None)
def test_a_beginning_is_the_beginning_of_the_whole(records: list[Recorded], until_ns: int) -> None:
    until_ns = records[until_ns % len(records)].at_ns if records and until_ns % 2 else until_ns
    arrived = [record for record in records if record.at_ns <= until_ns]
    assert unfold(folded(records), until_ns=until_ns).records == arrived


@pytest.mark.parametrize("tick", [-1, 0, 11, 29, 40])
def test_a_beginning_of_a_realistic_stream(tick: int) -> None:
    records = [Recorded(at, message) for at, batch in session(30) for message in batch]
    until_ns = START_NS + tick * TICK_NS
    arrived = [record for record in records if record.at_ns <= until_ns]
    data = folded(records)
    assert unfold(data, until_ns=until_ns).records == arrived
    gpus = [record for record in arrived if isinstance(record.message, GpuFrame)]
    assert unfold(data, frozenset(["gpu_frame"]), until_ns).records == gpus


def test_a_realistic_stream_comes_back_small() -> None:
    records = [Recorded(at, message) for at, batch in session(30) for message in batch]
    data = folded(records)
    assert unfold(data).records == records
    assert len(data) < sum(len(encode(record.message)) for record in records) / 4


def test_only_the_kinds_asked_for() -> None:
    records = [Recorded(at, message) for at, batch in session(3) for message in batch]
    wanted = [record for record in records if isinstance(record.message, GpuFrame)]
    assert unfold(folded(records), frozenset(["gpu_frame"])).records == wanted


def test_later_kinds_and_fields_are_skipped() -> None:
    later = msgspec.msgpack.encode({"kind": "hologram", "source": "s", "t_ns": 1})
    grown = msgspec.msgpack.encode(
        {"kind": "marker", "source": "s", "t_ns": 1, "category": "note", "text": "t", "colour": "red"}
    )
    records, unknown = unfold(fold([(1, later), (2, grown)]))
    assert unknown == {"hologram": 1}
    assert records == [Recorded(2, Marker(source="s", t_ns=1, category="note", text="t"))]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_damage_is_always_noticed(data: st.DataObject) -> None:
    records = [Recorded(at, message) for at, batch in session(1, gpus=1, stages=1) for message in batch]
    raw = bytearray(folded(records))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        unfold(bytes(raw))
    except DamagedSegment:
        return
    # A flip in the frame header's reserved or descriptor bits may leave the content as it was.
    assert unfold(bytes(raw)).records == records


@pytest.mark.parametrize("data", [b"", b"x", b"\x28\xb5\x2f\xfd", bytes(100)])
def test_no_segment(data: bytes) -> None:
    with pytest.raises(DamagedSegment):
        unfold(data)


@given(st.lists(_INT64, max_size=600))
@settings(deadline=None)
def test_integers(values: list[int]) -> None:
    import numpy as np

    assert unpack_integers(pack_integers(np.array(values, dtype=np.int64)), len(values)).tolist() == values


@given(
    st.one_of(
        st.lists(_INT64, max_size=300),
        st.lists(st.floats(allow_nan=False), max_size=300),
        st.lists(st.integers(-(10**6), 10**6).map(lambda n: n / 1000), min_size=257, max_size=300),
        st.lists(st.booleans(), max_size=20),
        st.lists(st.one_of(st.integers(0, 3), st.booleans(), st.none(), st.floats(allow_nan=False)), max_size=20),
        st.lists(st.integers(2**63, 2**64 - 1), max_size=20),
    )
)
@example([-0.0])
@settings(deadline=None)
def test_columns_keep_values_and_types(values: list[object]) -> None:
    back = unpack_column(pack_column(values), len(values))
    assert [(type(value), repr(value)) for value in back] == [(type(value), repr(value)) for value in values]
