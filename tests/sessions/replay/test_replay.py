"""Replay: the same messages as the session had, at any speed, from any instant, also of a file that still grows."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from sessions.messages import Jumped, KnobRequest, KnobState, Marker, Message, QueueFrame
from sessions.recording import meta
from sessions.recording.reader import Recording
from sessions.recording.state import SessionState
from sessions.recording.writer import RecordingWriter
from sessions.replay import ReplayChannel
from sessions.replay.headless import json_lines
from tests.sessions.recording.synthetic import START_NS, TICK_NS, WALL_NS, session

ORIGIN = meta.Origin(t_ns=START_NS, wall_ns=WALL_NS, host="host", command_line=[], versions={})
SECONDS = 60


class FakeClock:
    def __init__(self) -> None:
        self.now = 10**12

    def now_ns(self) -> int:
        return self.now


def batches(seconds: int = SECONDS) -> list[tuple[int, list[Message]]]:
    made = list(session(seconds * 10, gpus=1, stages=1, spans_per_second=10))
    for at_second in (second for second in (10, 20, 40) if second <= seconds):
        at_ns, batch = made[at_second * 10]
        batch.append(Marker(source="s", t_ns=at_ns, category="note", text=f"{at_second} s"))
    return made


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "x.herd"
    writer = RecordingWriter(path, ORIGIN)
    for at_ns, batch in batches():
        for message in batch:
            writer.write(at_ns, message)
        writer.commit()
    writer.close("done")
    return path


class Viewer:
    """What a console does: one store, filled from one subscription, emptied by a jump."""

    def __init__(self, path: Path, lookback_s: float = 5.0) -> None:
        self.clock = FakeClock()
        self.channel = ReplayChannel(path, self.clock, lookback_s, threaded=False)
        self._sub = self.channel.subscribe(list(_ALL))
        self.seen: list[Message] = []
        self.jumps = 0

    def pump(self, seconds: float = 0.0) -> list[Message]:
        self.clock.now += int(seconds * 1e9)
        self.channel.pump()
        new = self._sub.drain()
        for message in new:
            if isinstance(message, Jumped):
                self.seen.clear()
                self.jumps += 1
            else:
                self.seen.append(message)
        return new

    @property
    def at_s(self) -> float:
        return round((self.channel.position_ns - START_NS) / 1e9, 3)

    def known(self) -> list[Message]:
        return SessionState(self.seen).messages()


_ALL = {type(message) for _, batch in batches(1) for message in batch} | {Jumped, Marker}


def known_at(t_ns: int) -> list[Message]:
    return SessionState(m for at_ns, batch in batches() if at_ns <= t_ns for m in batch).messages()


def same(a: list[Message], b: list[Message]) -> bool:
    """Equal, whatever their order: a state has none."""
    return len(a) == len(b) and all(message in b for message in a)


def test_plays_every_message_once_in_order(path: Path) -> None:
    viewer = Viewer(path)
    assert viewer.pump() == [], "it starts paused"
    viewer.channel.play()
    for _ in range(SECONDS * 4 + 4):
        viewer.pump(0.25)
    assert viewer.seen == [message for _, batch in batches() for message in batch]
    assert viewer.jumps == 0
    assert not viewer.channel.player.playing, "at the end of a finished recording it stands still"
    viewer.channel.close()


def test_an_instant_is_shown_once_what_led_up_to_it_has_been_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A diagnosis of what is shown began, now and then, with half of its messages."""
    viewer = Viewer(path)
    during: set[float] = set()
    tell = viewer.channel.receive_message

    def told(message: Message) -> None:
        during.add(viewer.at_s)
        tell(message)

    monkeypatch.setattr(viewer.channel, "receive_message", told)
    viewer.channel.go_to(START_NS + 3 * 10**9)
    before = viewer.at_s
    viewer.pump()
    assert during == {before}
    assert viewer.at_s == 3
    viewer.channel.close()


@pytest.mark.parametrize(("asked", "speed"), [(0.25, 0.25), (1, 1), (16, 16), (100, 16), (0, 0.25)])
def test_speed(path: Path, asked: float, speed: float) -> None:
    viewer = Viewer(path)
    viewer.channel.set_speed(asked)
    viewer.channel.play()
    viewer.pump()
    viewer.pump(2)
    assert viewer.at_s == pytest.approx(min(2 * speed, SECONDS), abs=0.01)
    viewer.channel.pause()
    viewer.pump(2)
    assert viewer.at_s == pytest.approx(min(2 * speed, SECONDS), abs=0.01)
    viewer.channel.close()


def test_pause_does_not_make_up_for_lost_time(path: Path) -> None:
    viewer = Viewer(path)
    viewer.channel.play()
    viewer.pump()
    viewer.channel.pause()
    viewer.pump(30)
    viewer.channel.play()
    viewer.pump(1)
    viewer.pump(1)
    assert viewer.at_s == pytest.approx(1, abs=0.01)
    viewer.channel.close()


def test_a_viewer_after_any_move_knows_what_the_live_one_knew(path: Path) -> None:
    viewer = Viewer(path)
    for second in (30, 12, 13, 55, 0.3, 59.9, 60, 29.95, 100, -5):
        t_ns = START_NS + int(second * 1e9)
        viewer.channel.go_to(t_ns)
        viewer.pump()
        assert same(viewer.known(), known_at(max(t_ns, START_NS))), second
        if second >= 5:
            frames = [message for message in viewer.seen if isinstance(message, QueueFrame)]
            assert len(frames) >= min(50, second * 10 - 1), "the last seconds came along, for the charts"
    viewer.channel.close()


def test_steps_jumps_and_marks(path: Path) -> None:
    viewer = Viewer(path)
    viewer.channel.go_to(START_NS + 15_000_000_000)
    viewer.pump()
    assert viewer.at_s == 15
    for move, where in (
        (viewer.channel.step, 15.1),
        (lambda: viewer.channel.step(-2), 14.9),
        (lambda: viewer.channel.jump(10), 24.9),
        (lambda: viewer.channel.jump(-10), 14.9),
        (viewer.channel.next_mark, 20),
        (viewer.channel.next_mark, 40),
        (viewer.channel.next_mark, 40),
        (viewer.channel.previous_mark, 20),
        (viewer.channel.previous_mark, 10),
        (viewer.channel.previous_mark, 10),
    ):
        move()
        viewer.pump()
        assert viewer.at_s == where
    assert any(isinstance(message, Marker) and message.text == "10 s" for message in viewer.seen)
    viewer.channel.close()


def test_a_late_subscriber_gets_what_is_known(path: Path) -> None:
    viewer = Viewer(path)
    viewer.channel.go_to(START_NS + 30_000_000_000)
    viewer.pump()
    late = viewer.channel.subscribe([KnobState, QueueFrame])
    viewer.pump()
    assert same(
        late.drain(), [m for m in known_at(viewer.channel.position_ns) if isinstance(m, KnobState | QueueFrame)]
    )
    viewer.channel.close()


def test_commands_are_refused(path: Path) -> None:
    channel = ReplayChannel(path)
    command = KnobRequest(source=channel.source, t_ns=1, id="1", knob="async_depth", value=2)
    reply = channel.request(command, 5)
    assert not reply.ok
    assert reply.reason == "this is a replay: nothing can be changed in a recording"
    channel.close()


def test_runs_in_its_own_thread(path: Path) -> None:
    channel = ReplayChannel(path, lookback_s=1)
    sub = channel.subscribe([QueueFrame])
    channel.set_speed(16)
    channel.play()
    first = sub.get(5)
    assert isinstance(first, QueueFrame)
    channel.go_to(START_NS + 50_000_000_000)
    deadline = time.monotonic() + 5
    while channel.position_ns < START_NS + 50_000_000_000 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert channel.position_ns >= START_NS + 50_000_000_000
    channel.close()
    assert not channel._thread.is_alive()  # type: ignore[union-attr]


def test_follows_a_file_that_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "live.herd"
    writer = RecordingWriter(path, ORIGIN)
    made = batches()

    def record(first: int, last: int) -> None:
        for at_ns, batch in made[first:last]:
            for message in batch:
                writer.write(at_ns, message)
            writer.commit()

    record(0, 200)
    viewer = Viewer(path)
    viewer.channel.follow()
    viewer.pump()
    assert viewer.at_s == 19.9
    for end in range(210, 400, 10):
        record(end - 10, end)
        viewer.pump(1)
        assert viewer.at_s == pytest.approx((end - 1) / 10)
        assert same(viewer.known(), known_at(viewer.channel.position_ns))
    viewer.channel.jump(-10)
    viewer.pump()
    assert not viewer.channel.player.following
    assert viewer.at_s == pytest.approx(28.9)
    writer.close("done")
    viewer.channel.follow()
    viewer.pump()
    assert viewer.at_s == pytest.approx(38.9)
    viewer.channel.close()


def test_json_lines(path: Path) -> None:
    with Recording(path) as recording:
        lines = [json.loads(line) for line in json_lines(recording, kinds=[Marker])]
        assert [line["message"]["text"] for line in lines] == ["10 s", "20 s", "40 s"]
        assert lines[0]["at_ns"] == START_NS + 10_000_000_000
        assert lines[0]["utc_ns"] == WALL_NS + 10_000_000_000
        slept: list[float] = []
        list(json_lines(recording, kinds=[Marker], speed=2, sleep=slept.append))
        assert slept == [5, 10]
        everything = list(json_lines(recording, START_NS, START_NS + TICK_NS))
        assert len(everything) == sum(len(batch) for _, batch in batches()[:2])


def test_json_lines_follow_a_growing_file(tmp_path: Path) -> None:
    path = tmp_path / "live.herd"
    writer = RecordingWriter(path, ORIGIN)
    made = iter(batches(5))

    def record(_seconds: float) -> None:
        for at_ns, batch in [next(made) for _ in range(5)]:
            for message in batch:
                writer.write(at_ns, message)
            writer.commit()

    def sleep(seconds: float) -> None:
        try:
            record(seconds)
        except (StopIteration, RuntimeError):
            writer.close("done")

    record(0)
    with Recording(path) as recording:
        lines = list(json_lines(recording, follow=True, sleep=sleep))
        assert len(lines) == recording.count()
    assert len(lines) >= 5 * 10 * 2
