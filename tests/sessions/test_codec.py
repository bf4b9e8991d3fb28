"""Every message round-trips; no bytes whatever give anything but a message, an unknown kind or a clear error."""

from __future__ import annotations

import contextlib
import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.codec import MalformedMessage, UnknownKind, decode, encode, schema_refusal
from sessions.messages import SCHEMA_VERSION, Marker, Message, QueueFrame, SlotSize
from tests.sessions.strategies import messages


@given(messages())
@settings(max_examples=300, deadline=None)
def test_every_message_round_trips(message: Message) -> None:
    assert decode(encode(message)) == message


@given(st.binary(max_size=300))
@settings(max_examples=500, deadline=None)
def test_random_bytes_are_refused_clearly(data: bytes) -> None:
    try:
        assert isinstance(decode(data), Message | UnknownKind)
    except MalformedMessage as error:
        assert "\n" not in str(error)


@given(messages(), st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_messages_are_refused_or_read_as_messages(message: Message, data: st.DataObject) -> None:
    raw = bytearray(encode(message))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = data.draw(st.integers(0, len(raw)))
    for damaged in (bytes(raw), bytes(raw[:cut])):
        with contextlib.suppress(MalformedMessage):
            assert isinstance(decode(damaged), Message | UnknownKind)


def test_fields_of_a_later_version_are_skipped() -> None:
    raw = msgspec.msgpack.encode(
        {"kind": "marker", "source": "s", "t_ns": 1, "category": "note", "text": "t", "colour": ["new"]}
    )
    assert decode(raw) == Marker(source="s", t_ns=1, category="note", text="t")


def test_elements_of_a_later_version_are_skipped_in_array_like_structs() -> None:
    frame = QueueFrame(
        source="s", t_ns=1, waiting=0, running=1, slots=[SlotSize(1, 0, True)], in_flight=1, kv_blocks_used=0,
        kv_blocks=1, output_tokens_total=0, prompt_tokens_total=0,
    )  # fmt: skip
    fields = msgspec.msgpack.decode(encode(frame))
    fields["slots"][0].append("later")
    assert decode(msgspec.msgpack.encode(fields)) == frame


def test_kinds_of_a_later_version_are_named() -> None:
    raw = msgspec.msgpack.encode({"kind": "hologram", "source": "s", "t_ns": 1})
    assert decode(raw) == UnknownKind("hologram")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "malformed message"),
        (b"\xc1", "malformed message"),
        (msgspec.msgpack.encode({"source": "s"}), "malformed message"),
        (msgspec.msgpack.encode({"kind": "marker", "source": "s"}), "malformed marker.*t_ns"),
        (msgspec.msgpack.encode({"kind": "marker", "source": 1, "t_ns": 1}), r"malformed marker.*\$\.source"),
        (b"\x91" * 1_000_000, "malformed message"),
        (b"\x81\xa1k" * 300_000, "malformed message"),
    ],
)
def test_malformed_bytes_say_why_in_one_line(data: bytes, why: str) -> None:
    with pytest.raises(MalformedMessage, match=why):
        decode(data)


def test_over_the_size_limit() -> None:
    with pytest.raises(MalformedMessage, match="message of 11 bytes is longer than the 10 allowed"):
        decode(b"x" * 11, limit=10)


def test_a_claimed_size_is_not_believed() -> None:
    claims_4_billion = b"\x82\xa4kind\xa9log_lines\xa5lines\xdd\xff\xff\xff\xff"
    tracemalloc.start()
    with pytest.raises(MalformedMessage):
        decode(claims_4_billion)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_later_schema_is_refused_with_the_mend() -> None:
    assert schema_refusal(SCHEMA_VERSION, "x") is None
    assert schema_refusal(99, "host/engine/1") == (
        f"host/engine/1 uses message schema 99, newer than {SCHEMA_VERSION} known here: update herdscope on this side"
    )
