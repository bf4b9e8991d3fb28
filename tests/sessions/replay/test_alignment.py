from __future__ import annotations

from pathlib import Path

import pytest

from sessions.messages import LoadState, Marker
from sessions.recording.errors import RecordingError
from sessions.recording.meta import Origin
from sessions.recording.reader import Recording
from sessions.recording.writer import RecordingWriter
from sessions.replay.alignment import START, Anchor, anchors
from sessions.replay.channel import ReplayChannel
from sessions.replay.following import FollowingPlayer

S = 1_000_000_000
SOURCE = "host-abc123/engine/1"


class StillClock:
    """Stands until it is moved."""

    now = 0

    def now_ns(self) -> int:
        return self.now


def write(path: Path, start_s: int, seconds: int, marks: dict[int, tuple[str, str]]) -> Path:
    """A recording with a load state each tenth of a second, and marks (category, text) at seconds from its start."""
    start = start_s * S
    writer = RecordingWriter(path, Origin(t_ns=start, wall_ns=S, host="host", command_line=[], versions={}))
    for tenth in range(seconds * 10 + 1):
        at = start + tenth * S // 10
        if tenth % 10 == 0 and (mark := marks.get(tenth // 10)):
            writer.write(at, Marker(source=SOURCE, t_ns=at, category=mark[0], text=mark[1]))  # type: ignore[arg-type]
        writer.write(at, LoadState(source=SOURCE, t_ns=at, description="", concurrency=tenth))
    writer.close("done")
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    first = {3: ("note", "Warm now"), 5: ("knob", "admission = rebalance"), 9: ("knob", "async_depth = 8")}
    second = {2: ("knob", "async_depth = 8"), 4: ("note", "warm")}
    return write(tmp_path / "a.herd", 100, 20, first), write(tmp_path / "b.herd", 500, 10, second)


@pytest.mark.parametrize(
    ("align", "first", "second"),
    [
        (None, (105.0, "admission = rebalance"), (502.0, "async_depth = 8")),
        ("ASYNC_depth", (109.0, "async_depth = 8"), (502.0, "async_depth = 8")),
        ("warm", (103.0, "Warm now"), (504.0, "warm")),
        ("2", (105.0, "admission = rebalance"), (504.0, "warm")),
        ("2s", (102.0, "2s"), (502.0, "2s")),
        ("2.5", (102.5, "2.5"), (502.5, "2.5")),
        ("0:07", (107.0, "0:07"), (507.0, "0:07")),
    ],
)
def test_anchors(
    pair: tuple[Path, Path], align: str | None, first: tuple[float, str], second: tuple[float, str]
) -> None:
    assert anchors(*pair, align) == tuple(Anchor(round(at * S), what) for at, what in (first, second))


def test_without_a_knob_change_in_both_the_starts_are_aligned(pair: tuple[Path, Path], tmp_path: Path) -> None:
    quiet = write(tmp_path / "quiet.herd", 900, 4, {1: ("note", "nothing")})
    assert anchors(pair[0], quiet) == (Anchor(100 * S, START), Anchor(900 * S, START))


@pytest.mark.parametrize(
    ("align", "why"),
    [
        ("3", "b.herd has no mark 3: it has 2"),
        ("0", "a.herd has no mark 0: it has 3"),
        ("rebalance", r"b.herd: no mark says 'rebalance'; its marks are: 'async_depth = 8', 'warm'"),
        ("15s", "b.herd ends before 15s: it is 10.0 s long"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(pair: tuple[Path, Path], align: str, why: str) -> None:
    with pytest.raises(RecordingError, match=why) as caught:
        anchors(*pair, align)
    assert "\n" not in str(caught.value)


def test_the_follower_stands_where_the_leader_does(pair: tuple[Path, Path]) -> None:
    clock = StillClock()
    leader = ReplayChannel(pair[0], clock, threaded=False)
    offset = 400 * S - 3 * S  # second 5 of A over second 2 of B

    def player(recording: Recording, lookback_s: float) -> FollowingPlayer:
        return FollowingPlayer(recording, lookback_s, leader=leader, offset_ns=offset)

    follower = ReplayChannel(pair[1], clock, threaded=False, player=player)
    frames = follower.subscribe((LoadState,))
    running = -1

    def both() -> tuple[float, float, int]:
        nonlocal running
        leader.pump()
        follower.pump()
        for message in frames.drain():
            assert isinstance(message, LoadState)
            running = message.concurrency or 0
        return leader.position_ns / S - 100, follower.position_ns / S - 500, running

    leader.go_to(105 * S)
    assert both() == (5.0, 2.0, 20)
    leader.play()
    both()
    for tick in range(1, 6):
        clock.now += S // 10
        at, there, running = both()
        assert (round(at, 3), round(there, 3), running) == (5 + tick / 10, round(2 + tick / 10, 3), 20 + tick)
    leader.pause()
    leader.step(-1)
    assert [round(each, 3) for each in both()] == [5.4, 2.4, 24]
    leader.jump(-10)  # before the second begins: it stands at its start
    assert both() == (0.0, 0.0, 0)
    leader.go_to(119 * S)  # and after its end
    assert both() == (19.0, 10.0, 100)
    leader.go_to(106 * S)
    assert both() == (6.0, 3.0, 30)
    leader.close()
    follower.close()
