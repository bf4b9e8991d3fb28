"""Two recordings side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tui.console.fakes import FakeSession
from tests.tui.console.feed import MS, balanced, herd
from tests.tui.console.recorded import record
from tests.tui.console.test_recording_keys import until
from tui.console.app import ConsoleApp
from tui.console.panels.aligned import AlignedThroughput, RecordingLine
from tui.console.panels.panel import Panel
from tui.console.panels.stages import StagesPanel
from tui.console.session.replayed import ReplaySession

Build = Callable[..., ConsoleApp]
S = 1_000_000_000
FIRST_NS, SECOND_NS = herd().start_ns, 90_000_000 * MS


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A knob changes after 6 s in the first, after 3 s in the second; the second is shorter."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    record(herd(), 12.0, folder / "a.herd", 6.0, "knob", "admission = greedy")
    record(balanced(start_ns=SECOND_NS), 6.0, folder / "b.herd", 3.0, "knob", "admission = rebalance")
    return folder / "a.herd", folder / "b.herd"


def places(app: ConsoleApp) -> tuple[float, float]:
    """Seconds from the start of each recording at which they stand."""
    first, second = app.sessions.replay, app.sessions.beside.second
    assert first is not None and second is not None
    return (first.replay.position_ns - FIRST_NS) / S, (second.replay.position_ns - SECOND_NS) / S


def text_of(panel: Panel) -> str:
    return "\n".join(panel.render_line(y).text for y in range(panel.content_size.height))


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_both_move_in_lock_step_from_their_knob_changes(
    console: Build, pair: tuple[Path, Path], size: tuple[int, int]
) -> None:
    app = console(recording=pair[0], beside=pair[1])
    async with app.run_test(size=size) as pilot:
        replay = app.sessions.replay
        assert replay is not None and app.current_mode == "together"

        async def pressed(keys: list[str], first: float, second: float) -> None:
            await pilot.press(*keys)
            await until(pilot, app, lambda: tuple(round(at, 3) for at in places(app)) == (first, second))

        await until(pilot, app, lambda: places(app)[0] > 6.0 and places(app)[1] > 3.0)  # it plays from the marks
        await pilot.press("space")
        await until(pilot, app, lambda: not replay.replay.player.playing)
        await pressed(["k"], 6.0, 3.0)
        await pressed(["full_stop"], 6.1, 3.1)
        await pressed(["comma", "comma"], 5.9, 2.9)
        await pressed(["n"], 6.0, 3.0)
        await pressed(["right"], 12.0, 6.0)  # the second ends first
        await until(pilot, app, lambda: "has ended" in text_of(app.screen.query(RecordingLine).last()))
        await pressed(["p"], 6.0, 3.0)
        await pressed(["left"], 0.0, 0.0)
        await until(pilot, app, lambda: "not begun" in text_of(app.screen.query(RecordingLine).last()))
        await pressed(["n"], 6.0, 3.0)
        await pilot.press("plus")
        await until(pilot, app, lambda: replay.replay.player.speed == 2.0)
        await pilot.press("minus", "minus")
        await until(pilot, app, lambda: replay.replay.player.speed == 0.5)
        app.finish()


async def test_both_show_the_same_stretch_at_the_same_scale(console: Build, pair: tuple[Path, Path]) -> None:
    app = console(recording=pair[0], beside=pair[1], align="3.0")
    async with app.run_test(size=(120, 40)) as pilot:
        replay = app.sessions.replay
        assert replay is not None
        replay.replay.pause()
        replay.replay.go_to(FIRST_NS + 5 * S)
        other = app.sessions.beside.store
        await until(pilot, app, lambda: (app.store.now_ns, other.now_ns) == (FIRST_NS + 5 * S, SECOND_NS + 5 * S))
        app.frame()
        first, second = app.screen.query(StagesPanel)
        assert first.timebase.column_ns == second.timebase.column_ns
        assert second.timebase.start_ns - SECOND_NS == first.timebase.start_ns - FIRST_NS
        assert "S7" in text_of(first) and "S7" in text_of(second)
        charts = list(app.screen.query(AlignedThroughput))
        tops = {text_of(chart).splitlines()[1].split()[0] for chart in charts}
        assert len(tops) == 1
        assert charts[0].end_ns() - FIRST_NS == charts[1].end_ns() - SECOND_NS
        await pilot.press("left_square_bracket")
        app.frame()
        assert first.timebase.column_ns == second.timebase.column_ns
        app.finish()


async def test_two_marked_recordings_open_side_by_side_over_the_live_session(
    console: Build, pair: tuple[Path, Path]
) -> None:
    live = FakeSession(balanced(), 1.0, None)
    app = console(live)
    async with app.run_test(size=(100, 36)) as pilot:
        await until(pilot, app, lambda: app.store.queue is not None)
        await pilot.press("7")
        assert app.current_mode == "live"  # there are none yet
        await pilot.press("5")
        panel = app.screen.query_one("#recordings")
        await until(pilot, app, lambda: len(panel.found) == 2)  # type: ignore[attr-defined]
        names = [Path(one.path).name for one in panel.found]  # type: ignore[attr-defined]
        for name in ("a.herd", "b.herd"):
            panel.move(names.index(name))  # type: ignore[attr-defined]
            await pilot.press("space")
        await pilot.press("enter")
        await until(pilot, app, lambda: app.current_mode == "together")
        assert isinstance(app.session, ReplaySession) and app.session.title == "a.herd"
        second = app.sessions.beside.second
        assert second is not None and second.title == "b.herd"
        await pilot.press("1", "7")
        assert app.current_mode == "together"
        await pilot.press("E")
        await until(pilot, app, lambda: app.session is live)
        assert app.current_mode == "live" and app.sessions.beside.second is None
        app.finish()


async def test_what_cannot_be_aligned_is_said_and_the_session_stays(console: Build, pair: tuple[Path, Path]) -> None:
    app = console(FakeSession(balanced(), 1.0, None))
    async with app.run_test(size=(100, 36)) as pilot:
        await until(pilot, app, lambda: app.store.queue is not None)
        session = app.session
        assert not app.replays.open_beside(pair[0], pair[1], "no such mark")
        await pilot.pause()
        assert app.session is session and app.sessions.beside.second is None
        assert any("no mark says" in note.message for note in app._notifications)
