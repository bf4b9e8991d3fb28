from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot

from probes.diagnosis.from_recording import diagnose_at
from probes.diagnosis.live import verdicts_message
from sessions.channel.unix import UnixHub, connect_unix
from sessions.messages import Verdicts
from sessions.recording.meta import Origin
from sessions.recording.reader import Recording
from sessions.recording.writer import RecordingWriter
from tests.tui.console.fakes import FakeChannel, FakeSession
from tests.tui.console.feed import MS, WALL, balanced, herd
from tests.tui.console.recorded import MARK_AT_S, record
from tui.console.app import ConsoleApp
from tui.console.panels.panel import Panel
from tui.console.screens.ask_time import seconds_of
from tui.console.session.replayed import ReplaySession
from tui.console.view import ChosenSpan

Build = Callable[..., ConsoleApp]
S = 1_000_000_000


async def until(pilot: Pilot[object], app: ConsoleApp, true: Callable[[], bool], seconds: float = 20.0) -> None:
    """Draw frames until something holds."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come about"
        await pilot.pause(0.02)
        app.frame()
    await pilot.pause()


def record_turned(path: Path) -> None:
    """Six seconds of a herd, then six of the same requests spread out."""
    first = herd()
    second = balanced(start_ns=first.start_ns + 6 * S)
    writer = RecordingWriter(path, Origin(t_ns=first.start_ns, wall_ns=WALL, host="host", command_line=[], versions={}))
    for feed in (first, second):
        for at_ns, messages in [(feed.start_ns, feed.opening()), *feed.frames(6.0)]:
            for message in messages:
                writer.write(at_ns, message)
            writer.commit()
    writer.close("the session ended")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "tonight.herd"
    record(herd(), 12.0, path)
    return path


@pytest.fixture
def replayed(recording: Path) -> Iterator[ReplaySession]:
    session = ReplaySession(recording)
    session.replay.pause()
    session.open = session._index.start  # type: ignore[method-assign]
    yield session
    session.close()


async def test_keys_of_a_replay(console: Build, replayed: ReplaySession) -> None:
    app = console(replayed)
    start = herd().start_ns
    async with app.run_test(size=(100, 36)) as pilot:

        async def pressed(key: str, seconds: float) -> None:
            await pilot.press(key)
            await until(pilot, app, lambda: replayed.replay.position_ns == start + round(seconds * 10) * 100 * MS)

        await until(pilot, app, lambda: app.view.replay is not None)
        replayed.replay.go_to(start + S)
        await pressed("full_stop", 1.1)
        await pressed("comma", 1.0)
        await pressed("L", 11.0)
        await pressed("H", 1.0)
        await pressed("j", MARK_AT_S)
        await pressed("L", 12.0)
        await pressed("k", MARK_AT_S)
        await pilot.press("right_parenthesis")
        await until(pilot, app, lambda: replayed.replay.player.speed == 2.0)
        await pilot.press("left_parenthesis", "left_parenthesis")
        await until(pilot, app, lambda: replayed.replay.player.speed == 0.5)
        await pilot.press("space")
        await until(pilot, app, lambda: replayed.replay.player.playing)
        await pilot.press("space")
        await until(pilot, app, lambda: not replayed.replay.player.playing)
        await pilot.press("t", "4", "enter")
        await until(pilot, app, lambda: replayed.replay.position_ns == start + 4 * S)
        await pilot.press("E")
        await until(pilot, app, lambda: replayed.replay.position_ns == start + 12 * S)


async def test_commands_to_a_recording_are_refused_with_the_reason(console: Build, replayed: ReplaySession) -> None:
    app = console(replayed)
    async with app.run_test(size=(100, 36)) as pilot:
        replayed.replay.go_to(herd().start_ns + 5 * S)
        await until(pilot, app, lambda: app.store.knobs is not None)
        await pilot.press("d")
        await pilot.pause()
        assert "recording" in app.store.events[-1].text


async def test_a_click_on_the_scrub_bar_goes_there(console: Build, replayed: ReplaySession) -> None:
    app = console(replayed)
    async with app.run_test(size=(100, 36)) as pilot:
        await until(
            pilot, app, lambda: app.view.replay is not None and bool(app.screen.query("#replay-bar").first().size)
        )
        await pilot.click("#replay-bar", offset=(12 + 38, 0))
        await until(pilot, app, lambda: 5.5 <= (replayed.replay.position_ns - herd().start_ns) / S <= 6.5)


async def test_what_is_shown_is_diagnosed(console: Build, replayed: ReplaySession) -> None:
    app = console(replayed)
    async with app.run_test(size=(100, 36)) as pilot:
        await until(pilot, app, lambda: app.view.replay is not None)
        replayed.replay.go_to(herd().start_ns + 10 * S)
        await until(pilot, app, lambda: app.store.verdict is not None, 60.0)
        assert app.store.verdict is not None and "herd" in app.store.verdict.text.lower()


async def test_after_a_jump_back_the_instant_shown_is_diagnosed(console: Build, tmp_path: Path) -> None:
    path = tmp_path / "tonight.herd"
    record_turned(path)
    session = ReplaySession(path)
    session.open = session._index.start  # type: ignore[method-assign]
    app = console(session)
    async with app.run_test(size=(100, 36)) as pilot:
        for seconds, herd_then in ((11, False), (5, True), (3, True), (10, False)):
            at_ns = herd().start_ns + seconds * S
            session.replay.go_to(at_ns)
            await until(
                pilot, app, lambda at_ns=at_ns: app.store.verdicts is not None and app.store.verdicts.t_ns == at_ns
            )
            assert app.store.verdicts is not None
            expected = verdicts_message(diagnose_at(path, at_ns), app.store.verdicts.source, at_ns)
            assert msgspec.structs.replace(app.store.verdicts, scored="") == expected
            assert ("herd" in expected.headline) == herd_then
    session.close()


async def test_a_span_is_chosen_by_keys_and_diagnosed(console: Build, tmp_path: Path) -> None:
    path = tmp_path / "tonight.herd"
    record_turned(path)
    session = ReplaySession(path)
    session.open = session._index.start  # type: ignore[method-assign]
    app = console(session)
    start = herd().start_ns

    async with app.run_test(size=(110, 36)) as pilot:

        async def at(seconds: float, key: str) -> None:
            session.replay.go_to(start + round(seconds * S))
            await until(pilot, app, lambda: session.replay.position_ns == start + round(seconds * S))
            await pilot.press(key)
            await pilot.pause()

        def found() -> Verdicts:
            assert app.view.apart is not None
            return app.view.apart.verdicts

        await until(pilot, app, lambda: app.view.replay is not None)
        await at(1.0, "i")
        assert app.view.span == ChosenSpan(start + S) and app.view.apart is None
        await at(5.0, "o")
        await until(pilot, app, lambda: app.view.apart is not None, 60.0)
        assert app.current_mode == "diagnosis" and app.view.apart is not None
        assert app.view.apart.of == "0:00:01 to 0:00:05"
        assert "herd" in found().headline
        app.frame()
        await pilot.pause()
        title = str(app.screen.query_one("#measures").border_title)
        assert "of 0:00:01 to 0:00:05 (2 goes back to now)" in title
        bar = app.screen.query_one("#replay-bar", Panel)
        assert 20 <= bar.render_line(1).text.count("━") <= 40

        herd_found = app.view.apart
        await at(11.0, "o")  # on the diagnosis screen, and beyond the knob: the stretch after it
        await until(pilot, app, lambda: app.view.apart is not herd_found, 60.0)
        assert "herd" not in found().headline and app.current_mode == "diagnosis"
        await pilot.press("2")
        assert app.view.apart is None

        await at(11.5, "i")  # behind the end, which is forgotten
        assert app.view.span == ChosenSpan(start + round(11.5 * S))
        await at(9.0, "o")  # before the start: from the beginning
        assert app.view.span == ChosenSpan(start, start + 9 * S)
        await until(pilot, app, lambda: app.view.apart is not None, 60.0)
        app.open_launcher()
        app.spans.tick()
        assert app.view.span is None and app.view.apart is None
    session.close()


async def test_a_span_needs_a_recording(console: Build) -> None:
    app = console(FakeSession(herd(), 1.0, FakeChannel()))
    async with app.run_test(size=(100, 36)) as pilot:
        await until(pilot, app, lambda: app.store.queue is not None)
        await pilot.press("i", "o")
        assert [event.text for event in app.store.events][-1] == "span: no recording is shown"
        assert app.view.span is None


async def test_recording_starts_and_stops_and_the_last_minutes_can_be_saved(console: Build, tmp_path: Path) -> None:
    hub = UnixHub(tmp_path / "e.sock", "host-abc123/engine/1", "engine")
    channel = connect_unix(tmp_path / "e.sock", "host-abc123/console/2", "console", 5.0)
    feed = herd()
    app = console(FakeSession(feed, 1.0, channel))
    try:
        async with app.run_test(size=(100, 36)) as pilot:
            await until(pilot, app, lambda: app.store.queue is not None)
            await pilot.press("r")
            await until(pilot, app, lambda: app.view.recording != "")
            for message in feed.opening():
                hub.publish(message)
            await pilot.pause(0.5)
            await pilot.press("F", "r")
            await until(pilot, app, lambda: app.view.recording == "")
            files = sorted((tmp_path / "sessions").glob("*.herd"))
            texts = [event.text for event in app.store.events]
            assert any("recording to" in text for text in texts) and any("recorded to" in text for text in texts)
            assert any("the last minutes are in" in text for text in texts), texts
            for path in files:
                with Recording(path) as recorded:
                    assert recorded.count() > 0 and recorded.ending is not None
    finally:
        app.finish()
        channel.close()
        hub.close()


async def test_looking_back_and_returning_keeps_the_live_history(console: Build, tmp_path: Path) -> None:
    hub = UnixHub(tmp_path / "e.sock", "host-abc123/engine/1", "engine")
    channel = connect_unix(tmp_path / "e.sock", "host-abc123/console/2", "console", 5.0)
    session = FakeSession(herd(), 8.0, channel)
    app = console(session)
    try:
        async with app.run_test(size=(100, 36)) as pilot:
            await until(pilot, app, lambda: app.store.queue is not None)
            for message in herd().opening():
                hub.publish(message)
            await pilot.pause(0.5)
            history = len(app.store.output_rate.series)
            assert history > 50
            await pilot.press("T")
            await until(pilot, app, lambda: app.view.replay is not None)
            assert app.session is not session and len(app.store.output_rate.series) == 0
            await pilot.press("E")
            await until(pilot, app, lambda: app.view.replay is None)
            assert app.session is session and session.closed == 0
            assert len(app.store.output_rate.series) == history
    finally:
        app.finish()
        channel.close()
        hub.close()


async def test_a_recording_is_opened_from_the_sessions_screen(console: Build, tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    record(herd(), 3.0, tmp_path / "sessions" / "a.herd")
    (tmp_path / "sessions" / "b.herd").write_bytes(b"not a recording")
    app = console(FakeSession(balanced(), 1.0, None))
    async with app.run_test(size=(100, 36)) as pilot:
        await until(pilot, app, lambda: app.store.queue is not None)
        await pilot.press("5")
        panel = app.screen.query_one("#recordings")
        await until(pilot, app, lambda: len(panel.found) == 2)  # type: ignore[attr-defined]
        states = {Path(one.path).name: one.state for one in panel.found}  # type: ignore[attr-defined]
        assert states == {"a.herd": "finished", "b.herd": "unreadable"}
        panel.move([Path(one.path).name for one in panel.found].index("a.herd"))  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, app, lambda: isinstance(app.session, ReplaySession))
        app.finish()


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("2:30", 150.0), ("1:02:03", 3723.0), (" 0:05.5 ", 5.5)])
def test_times_as_people_write_them(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "noon", "1:2:3:4", "-5"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        seconds_of(text)
