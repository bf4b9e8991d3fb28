"""Properties of the carrier's parts, without a broker."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.channel.mqtt.clocks import ClockBook
from sessions.channel.mqtt.commands import AskedCommands, ReceivedCommands
from sessions.channel.mqtt.outgoing import MAX_FRAME_BYTES, MAX_KEPT_BYTES, Outgoing, Publication
from sessions.channel.mqtt.payload import joined, pack, unpack
from sessions.channel.mqtt.topics import Topics
from sessions.codec import MalformedMessage
from sessions.messages import Hello, KnobRequest, Marker, Reply


@given(st.lists(st.one_of(st.integers(), st.binary(max_size=50), st.lists(st.text(max_size=5))), max_size=40))
def test_items_come_back_from_a_payload(items: list[object]) -> None:
    packed = pack([msgspec.msgpack.encode(item) for item in items]) if _fits(items) else None
    if packed is not None:
        assert [msgspec.msgpack.decode(item) for item in unpack(packed)] == items


def _fits(items: list[object]) -> bool:
    return all(not isinstance(item, int) or -(2**63) <= item < 2**64 for item in items)


@given(st.binary(max_size=300))
def test_any_bytes_unpack_or_are_called_malformed(data: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        unpack(data)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.integers(0, 5)), max_size=60))
def test_publications_leave_in_order_and_batches_share_one_topic(entries: list[tuple[str, bool, int]]) -> None:
    outgoing = Outgoing(lambda: None)
    put = [
        Publication(topic, msgspec.msgpack.encode(number), qos=1, retain=retain) for topic, retain, number in entries
    ]
    for publication in put:
        outgoing.put(publication)
    taken: list[Publication] = []
    while batch := outgoing.take():
        assert len({publication.topic for publication in batch}) == 1
        assert len(batch) == 1 or not any(publication.retain for publication in batch)
        assert unpack(joined(batch).payload) == [publication.payload for publication in batch]
        taken += batch
    assert taken == put


def test_over_the_limit_the_oldest_frames_go_and_nothing_else() -> None:
    outgoing = Outgoing(lambda: None)
    kept = Publication("t", b"command", qos=1)
    outgoing.put(kept)
    for number in range(20):
        outgoing.put(Publication(f"f{number}", bytes(MAX_FRAME_BYTES // 10), qos=0, droppable=True))
    left: list[Publication] = []
    while batch := outgoing.take():
        left += batch
    assert left[0] == kept
    assert left[-1].topic == "f19"
    assert outgoing.dropped + len(left) - 1 == 20
    assert outgoing.dropped >= 10


def test_a_backlog_that_nothing_explains_is_refused_not_kept() -> None:
    outgoing = Outgoing(lambda: None)
    for _ in range(3):
        outgoing.put(Publication("t", bytes(MAX_KEPT_BYTES // 2), qos=1))
    assert outgoing.lost == 1


@given(st.integers(-(10**15), 10**15), st.integers(0, 10**9), st.integers(0, 10**9))
def test_the_offset_is_within_its_bound(true_offset: int, there_ns: int, back_ns: int) -> None:
    book = ClockBook("here-1/console/1")
    sent = 10**12
    book.learn_ping("there-2/engine/1", sent, sent + there_ns + true_offset, sent + there_ns + back_ns)
    offset = book.offset_of("there-2/probe/9")
    assert offset is not None, "all sources of a host share its clock"
    assert abs(offset.offset_ns - true_offset) <= offset.error_ns + 1


def test_the_best_estimate_is_kept_and_times_are_put_on_our_clock() -> None:
    book = ClockBook("here-1/console/1")
    there = "there-2/engine/1"
    book.learn_anchor(Hello(source=there, t_ns=500, wall_ns=10_000, role="engine", host="h", pid=1), 2_000, 10_000)
    assert book.to_ours(Marker(source=there, t_ns=600, category="note", text="")).t_ns == 2_100
    book.learn_ping(there, 2_000, 510, 2_020)
    assert book.to_ours(Marker(source=there, t_ns=600, category="note", text="")).t_ns == 2_100
    book.learn_ping(there, 2_000, 0, 9_000_000)
    assert book.offsets()["there-2"].error_ns == 10
    own = Marker(source="here-1/load/3", t_ns=600, category="note", text="")
    assert book.to_ours(own) is own


def test_commands_are_asked_again_until_answered_or_no_longer_awaited() -> None:
    asked = AskedCommands()
    command = KnobRequest(source="s", t_ns=0, id="a", knob="async_depth", value=1)
    asked.ask(command, 0)
    assert asked.due(500_000_000, {"a"}) == []
    assert asked.due(1_000_000_000, {"a"}) == [command]
    assert asked.due(1_500_000_000, {"a"}) == []
    assert asked.due(3_000_000_000, set()) == []
    assert asked.answered("a") is None


def test_a_command_is_new_once_and_its_reply_is_kept() -> None:
    received = ReceivedCommands()
    command = KnobRequest(source="s", t_ns=0, id="a", knob="async_depth", value=1)
    assert received.is_new(command)
    assert not received.is_new(command)
    assert received.reply_to(command) is None
    reply = Reply(source="e", t_ns=1, id="a", to="s", ok=True)
    received.replied(reply)
    assert received.reply_to(command) == reply
    assert received.is_new(msgspec.structs.replace(command, source="other"))


@pytest.mark.parametrize("source", ["node7-1a2b3c/engine/12", "a+b/#/%", "x"])
def test_a_source_is_one_level_of_a_topic_and_comes_back(source: str) -> None:
    topics = Topics("lab/main")
    topic = topics.pub(source, "gpu_frame")
    assert topic.count("/") == 4
    assert not set("+#") & set(topic)
    name = topics.parse(topic)
    assert name is not None
    assert (name.line, name.first, name.second) == ("pub", source, "gpu_frame")


@pytest.mark.parametrize("topic", ["other/main/pub/a/b", "lab/main/pub", "lab/main/a/b/c/d", "lab/main"])
def test_other_topics_are_not_taken_apart(topic: str) -> None:
    assert Topics("lab/main").parse(topic) is None
