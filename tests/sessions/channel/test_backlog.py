"""The bounded backlog behaves as a plain list does, and holds on to nothing that was dropped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.channel.backlog import Backlog
from sessions.channel.interface import ChannelClosed
from sessions.channel.subscription import MAX_UNREAD, QueueSubscription
from sessions.messages import LogLines, Marker

_STEPS = st.lists(st.sampled_from(["keep", "frame", "frame", "drop", "pop", "all"]), max_size=400)


@given(_STEPS)
def test_behaves_as_a_list(steps: list[str]) -> None:
    backlog: Backlog[int] = Backlog()
    model: list[tuple[int, bool]] = []
    for number, step in enumerate(steps):
        if step in ("keep", "frame"):
            backlog.append(number, step == "frame")
            model.append((number, step == "frame"))
        elif step == "drop" and any(droppable for _, droppable in model):
            oldest = next(item for item in model if item[1])
            model.remove(oldest)
            assert backlog.drop_oldest() == oldest[0]
        elif step == "pop" and model:
            assert backlog.pop() == model.pop(0)[0]
        elif step == "all":
            assert backlog.take_all() == [value for value, _ in model]
            model.clear()
        assert len(backlog) == len(model)
        assert backlog.droppable == sum(droppable for _, droppable in model)


def test_dropped_items_leave_no_trace() -> None:
    backlog: Backlog[int] = Backlog()
    for number in range(100):
        backlog.append(number, droppable=False)
    for number in range(10_000):
        backlog.append(number, droppable=True)
        backlog.drop_oldest()
    assert len(backlog._items) < 1_000
    with pytest.raises(IndexError):
        backlog.drop_oldest()


def test_a_reader_that_leaves_too_much_unread_is_ended() -> None:
    ended: list[QueueSubscription] = []
    sub = QueueSubscription(1, [Marker, LogLines], (), 4, ended.append)
    message = Marker(source="s", t_ns=1, category="note", text="")
    for _ in range(MAX_UNREAD + 10):
        sub.push(message)
        sub.push(LogLines(source="s", t_ns=1, lines=[]))
    assert ended == [sub]
    assert sub.dropped > 0
    got = sub.drain()
    assert sum(isinstance(one, Marker) for one in got) == MAX_UNREAD
    with pytest.raises(ChannelClosed, match=f"the reader left {MAX_UNREAD} messages unread"):
        sub.get(0)
