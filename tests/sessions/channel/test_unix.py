"""The Unix-socket carrier inside one process: every promise of the channel interface."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.channel.interface import ChannelClosed, ChannelError, RequestTimeout
from sessions.channel.unix import UnixHub, UnixPeer, connect_unix
from sessions.knobs import Knobs
from sessions.messages import (
    EngineState,
    Fault,
    Goodbye,
    Hello,
    KnobReply,
    KnobRequest,
    KnobState,
    LogLine,
    LogLines,
    Marker,
    QueueFrame,
)


def marker(source: str, text: str = "x") -> Marker:
    return Marker(source=source, t_ns=time.monotonic_ns(), category="note", text=text)


def log(source: str, text: str = "x") -> LogLines:
    return LogLines(source=source, t_ns=1, lines=[LogLine(1, None, text)])


def knob(peer: UnixPeer, command_id: str = "1") -> KnobRequest:
    return KnobRequest(source=peer.source, t_ns=1, id=command_id, knob="async_depth", value=4)


def accept(command: KnobRequest, source: str = "hub") -> KnobReply:
    return KnobReply(
        source=source, t_ns=2, id=command.id, to=command.source, ok=True, knob="async_depth", applied=command.value
    )


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[UnixHub]:
    hub = UnixHub(tmp_path / "s", "hub", "engine")
    yield hub
    hub.close()


@pytest.fixture
def peers(hub: UnixHub) -> Iterator[tuple[UnixPeer, UnixPeer]]:
    first = connect_unix(hub.path, "first", "console", 5)
    second = connect_unix(hub.path, "second", "load", 5)
    yield first, second
    first.close()
    second.close()


def wait_until(condition: object, timeout_s: float = 5.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "condition never became true"
        time.sleep(0.005)


def test_hub_publishes_to_peers_and_to_itself(hub: UnixHub, peers: tuple[UnixPeer, UnixPeer]) -> None:
    own = hub.subscribe([Marker])
    subs = [peer.subscribe([Marker]) for peer in peers]
    # The retained reply to a later subscription shows that the earlier ones are in force.
    wait_until(lambda: hub.wanted(Marker))
    hub.publish(state := EngineState(source="hub", t_ns=1, phase="ready"))
    for peer in peers:
        assert peer.subscribe([EngineState]).get(5) == state
    hub.publish(message := marker("hub"))
    assert [sub.get(5) for sub in (own, *subs)] == [message] * 3


def test_peer_publishes_to_everybody(hub: UnixHub, peers: tuple[UnixPeer, UnixPeer]) -> None:
    first, second = peers
    at_hub = hub.subscribe([Marker])
    at_second = second.subscribe([Marker])
    wait_until(lambda: first.wanted(Marker))
    first.publish(message := marker("first"))
    assert at_hub.get(5) == message
    assert at_second.get(5) == message


def test_filters_by_kind_and_source(hub: UnixHub, peers: tuple[UnixPeer, UnixPeer]) -> None:
    first, second = peers
    sub = second.subscribe([Marker], sources=["first"])
    wait_until(lambda: hub.wanted(Marker))
    wait_until(lambda: first.wanted(Marker))
    hub.publish(marker("hub"))
    first.publish(message := marker("first"))
    assert sub.get(5) == message
    assert sub.drain() == []


def test_nothing_is_wanted_without_a_reader(hub: UnixHub, peers: tuple[UnixPeer, UnixPeer]) -> None:
    first, second = peers
    assert not hub.wanted(QueueFrame)
    sub = second.subscribe([QueueFrame])
    wait_until(lambda: hub.wanted(QueueFrame) and first.wanted(QueueFrame))
    sub.close()
    wait_until(lambda: not hub.wanted(QueueFrame) and not first.wanted(QueueFrame))


def test_late_joiner_gets_each_source_s_last_retained_value(hub: UnixHub) -> None:
    early = connect_unix(hub.path, "early", "probe", 5)
    for depth in (1, 2):
        hub.publish(KnobState(source="hub", t_ns=depth, knobs=Knobs(async_depth=depth)))
    early.publish(KnobState(source="early", t_ns=3, knobs=Knobs(async_depth=3)))
    watcher = hub.subscribe([KnobState], sources=["early"])
    assert watcher.get(5) is not None
    late = connect_unix(hub.path, "late", "console", 5)
    sub = late.subscribe([KnobState])
    got = {message.source: message for message in (sub.get(5), sub.get(5)) if isinstance(message, KnobState)}
    assert {source: state.knobs.async_depth for source, state in got.items()} == {"hub": 2, "early": 3}
    early.close()
    late.close()


def test_retained_values_leave_with_their_source_but_faults_and_engine_states_stay(hub: UnixHub) -> None:
    goodbyes = hub.subscribe([Goodbye])
    peer = connect_unix(hub.path, "peer", "engine", 5)
    peer.publish(KnobState(source="peer", t_ns=1, knobs=Knobs()))
    peer.publish(EngineState(source="peer", t_ns=1, phase="failed"))
    peer.publish(Fault(source="peer", t_ns=1, what="rank 1", cause="killed"))
    peer.close("done")
    assert goodbyes.get(5) is not None
    kinds = [EngineState, KnobState, Fault]
    sub = hub.subscribe(kinds)
    got = [sub.get(5), sub.get(5)]
    assert {type(message) for message in got} == {EngineState, Fault}
    hub.publish(EngineState(source="peer", t_ns=2, phase="ready"))
    fresh = hub.subscribe(kinds)
    assert fresh.get(5) == EngineState(source="peer", t_ns=2, phase="ready")
    assert fresh.get(0.05) is None, "a fault ends when its engine is ready again"


def test_request_reaches_its_server_and_the_reply_its_asker(hub: UnixHub, peers: tuple[UnixPeer, UnixPeer]) -> None:
    first, second = peers
    served = hub.serve([KnobRequest])
    marks = second.subscribe([KnobRequest, KnobReply])
    wait_until(lambda: hub.wanted(KnobReply))

    def serve() -> None:
        command = served.get(5)
        assert isinstance(command, KnobRequest)
        hub.answer(command, accept(command))

    thread = threading.Thread(target=serve)
    thread.start()
    command = knob(first)
    assert first.request(command, 5) == accept(command)
    thread.join()
    assert [marks.get(5), marks.get(5)] == [command, accept(command)], "others see commands and replies pass"


async def test_ask_from_an_event_loop_and_next(hub: UnixHub, peers: tuple[UnixPeer, UnixPeer]) -> None:
    first, second = peers
    served = second.serve([KnobRequest])

    async def serve() -> None:
        command = await served.next(5)
        assert isinstance(command, KnobRequest)
        second.answer(command, accept(command, "second"))

    await asyncio.sleep(0.05)
    task = asyncio.create_task(serve())
    assert await first.ask(knob(first), 5) == accept(knob(first), "second")
    await task
    assert await served.next(0.01) is None
    with pytest.raises(RequestTimeout, match="no reply to KnobRequest"):
        await first.ask(knob(first, "2"), 0.05)


def test_command_without_a_server_is_refused_at_once(peers: tuple[UnixPeer, UnixPeer]) -> None:
    reply = peers[0].request(knob(peers[0]), 5)
    assert not reply.ok
    assert reply.reason == "nobody here serves knob_request"


def test_request_times_out(hub: UnixHub, peers: tuple[UnixPeer, UnixPeer]) -> None:
    hub.serve([KnobRequest])
    with pytest.raises(RequestTimeout, match=r"no reply to KnobRequest within 0.05 s"):
        peers[0].request(knob(peers[0]), 0.05)


def test_repeated_command_is_applied_once_and_answered_again(hub: UnixHub, peers: tuple[UnixPeer, UnixPeer]) -> None:
    first, _ = peers
    served = hub.serve([KnobRequest])
    command = knob(first)
    for _ in range(2):
        with pytest.raises(RequestTimeout):
            first.request(command, 0.05)
    taken = served.drain()
    assert taken == [command]
    hub.answer(command, accept(command))
    time.sleep(0.05)
    assert first.request(command, 5) == accept(command)
    assert served.drain() == []


def test_one_server_a_command(hub: UnixHub, peers: tuple[UnixPeer, UnixPeer]) -> None:
    hub.serve([KnobRequest])
    refused = peers[0].serve([KnobRequest])
    with pytest.raises(ChannelClosed, match="knob_request is served by hub already"):
        refused.get(5)


def test_death_of_a_server_answers_its_askers(hub: UnixHub, peers: tuple[UnixPeer, UnixPeer]) -> None:
    first, second = peers
    served = second.serve([KnobRequest])
    replies = []
    thread = threading.Thread(target=lambda: replies.append(first.request(knob(first), 5)))
    time.sleep(0.05)
    thread.start()
    assert served.get(5) is not None
    second.close("crash")
    thread.join()
    assert not replies[0].ok
    assert replies[0].reason == "second is gone: crash"


def test_a_reply_must_answer_its_command(hub: UnixHub, peers: tuple[UnixPeer, UnixPeer]) -> None:
    with pytest.raises(ChannelError, match="does not answer"):
        hub.answer(knob(peers[0], "1"), accept(knob(peers[0], "2")))


def test_arrivals_and_departures_are_published(hub: UnixHub) -> None:
    sub = hub.subscribe([Hello, Goodbye])
    peer = connect_unix(hub.path, "peer", "probe", 5)
    arrived = sub.get(5)
    assert isinstance(arrived, Hello)
    assert (arrived.source, arrived.role) == ("peer", "probe")
    peer.close("finished")
    left = sub.get(5)
    assert isinstance(left, Goodbye)
    assert (left.peer, left.reason, left.expected) == ("peer", "finished", True)


def test_peers_notice_the_end_of_the_hub(hub: UnixHub, peers: tuple[UnixPeer, UnixPeer]) -> None:
    sub = peers[0].subscribe([Goodbye])
    hub.close("engine stopped")
    left = sub.get(5)
    assert isinstance(left, Goodbye)
    assert (left.peer, left.reason, left.expected) == ("hub", "engine stopped", True)
    with pytest.raises(ChannelClosed, match="engine stopped"):
        sub.get(5)
    with pytest.raises(ChannelClosed):
        peers[0].request(knob(peers[0]), 5)
    assert not hub.path.exists()


def test_a_goodbye_is_read_though_sending_fails_first(hub: UnixHub, peers: tuple[UnixPeer, UnixPeer]) -> None:
    """The peer's thread is held up while the hub says goodbye, so that its next send finds the socket closed."""
    sub = peers[0].subscribe([Goodbye])
    held = threading.Event()
    peers[0]._loop.post(held.wait, 5)
    hub.close("engine stopped")
    peers[0].publish(marker("p0"))
    held.set()
    left = sub.get(5)
    assert isinstance(left, Goodbye)
    assert (left.reason, left.expected) == ("engine stopped", True)


def test_wakes_on_arrival_once_until_drained(hub: UnixHub) -> None:
    sub = hub.subscribe([Marker])
    woken: list[int] = []
    sub.on_arrival(lambda: woken.append(1))
    for _ in range(3):
        hub.publish(marker("hub"))
    wait_until(lambda: len(sub._queue) == 3)
    assert len(woken) == 1
    assert len(sub.drain()) == 3
    hub.publish(marker("hub"))
    wait_until(lambda: len(woken) == 2)


def test_local_queue_drops_oldest_frames_only(hub: UnixHub) -> None:
    sub = hub.subscribe([LogLines, Marker], capacity=3)
    for number in range(6):
        hub.publish(log("hub", str(number)))
        hub.publish(marker("hub", str(number)))
    wait_until(lambda: len(sub._queue) == 9)
    got = sub.drain()
    assert [m.text for m in got if isinstance(m, Marker)] == list("012345")
    assert [m.lines[0].text for m in got if isinstance(m, LogLines)] == list("345")
    assert sub.dropped == 3


def test_private_socket_and_stale_one_replaced(tmp_path: Path) -> None:
    path = tmp_path / "private" / "s"
    first = UnixHub(path, "a", "engine")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(ChannelError, match="another engine listens"):
        UnixHub(path, "b", "engine")
    first._listener.close()  # as after kill -9: the file stays, nobody listens
    second = UnixHub(path, "c", "engine")
    peer = connect_unix(path, "p", "console", 5)
    peer.close()
    second.close()
    first.close()


def test_clear_errors_of_paths(tmp_path: Path) -> None:
    with pytest.raises(ChannelError, match="choose a shorter one"):
        UnixHub(tmp_path / ("x" * 120), "a", "engine")
    with pytest.raises(ChannelError, match="no engine listens on"):
        connect_unix(tmp_path / "none", "a", "console", 0.1)
    (tmp_path / "folder").mkdir(mode=0o500)
    with pytest.raises(ChannelError, match="cannot listen on"):
        UnixHub(tmp_path / "folder" / "missing" / "s" if _is_user() else Path("/proc/nope/s"), "a", "engine")


def _is_user() -> bool:
    import os

    return os.getuid() != 0


def test_close_is_quick_and_repeatable(tmp_path: Path) -> None:
    hub = UnixHub(tmp_path / "s", "hub", "engine")
    peer = connect_unix(hub.path, "p", "console", 5)
    peer.close()
    peer.close()
    hub.close()
    hub.close()
    hub.publish(marker("hub"))
    with pytest.raises(ChannelClosed):
        hub.subscribe([Marker])
    assert not hub._loop._thread.is_alive()
    assert not peer._loop._thread.is_alive()
