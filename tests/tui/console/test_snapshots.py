"""Pictures of the screens at fixed instants of a synthetic feed. Look at them before accepting a change
(pytest --snapshot-update)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from sessions.knobs import Knobs
from sessions.messages import BenchDone, Fault
from tests.tui.console.fakes import FakeChannel, FakeSession
from tests.tui.console.feed import MS, SOURCE, Feed, balanced, herd
from tests.tui.console.recorded import record
from tests.tui.console.results import run_a, run_b
from tests.tui.console.verdicts import VERDICTS
from tui.console.app import ConsoleApp
from tui.console.session.replayed import ReplaySession
from tui.console.store.outlook import Expected, VerdictLine

Build = Callable[..., ConsoleApp]
SIZES = [(80, 24), (120, 40), (200, 60)]
VERDICT = VerdictLine("problem", "Thundering herd: 16 of 16 requests in one of 8 slots", "rebalance", "verdict.apply")
EXPECTED = Expected(230.0, 270.0, 310.0, dict.fromkeys(range(8), 290.0))


def shown(build: Build, feed: Feed | None, outlook: bool = False) -> tuple[ConsoleApp, Callable[[Any], Any]]:
    """A console, and what brings it to its picture: two frames of a feed whose time stands still."""
    app = build(FakeSession(feed, 20.0, FakeChannel()) if feed else None)

    async def ready(pilot: Any) -> None:
        await pilot.pause()
        app.frame()
        if outlook:
            app.store.verdict, app.store.expected = VERDICT, EXPECTED
        app.frame()
        await pilot.pause()
        app.frame()
        await pilot.pause()

    return app, ready


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
@pytest.mark.parametrize("stages", [1, 8, 64])
def test_live_evenly_spread(snap_compare: Any, console: Build, size: tuple[int, int], stages: int) -> None:
    app, ready = shown(console, balanced(stages=stages, gpus=stages))
    assert snap_compare(app, terminal_size=size, run_before=ready)


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
def test_live_herd_with_a_verdict(snap_compare: Any, console: Build, size: tuple[int, int]) -> None:
    app, ready = shown(console, herd(), outlook=True)
    assert snap_compare(app, terminal_size=size, run_before=ready)


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
def test_live_without_colour(
    snap_compare: Any, console: Build, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app, ready = shown(console, balanced(), outlook=True)
    assert not app.view.colour
    assert snap_compare(app, terminal_size=size, run_before=ready)


def test_live_on_a_cpu_with_processes(snap_compare: Any, console: Build) -> None:
    app, ready = shown(console, herd(gpus=0, stages=4, slots=(16, 0, 0, 0), knobs=Knobs(async_depth=4)))
    assert snap_compare(app, terminal_size=(80, 24), run_before=ready)


def test_live_emulated_expert_parallel(snap_compare: Any, console: Build) -> None:
    feed = balanced(ep=True, emulated=True)
    feed.knobs = Knobs(async_depth=1, parallelism="ep", cuda_graphs=True)
    app, ready = shown(console, feed)
    assert snap_compare(app, terminal_size=(120, 40), run_before=ready)


@pytest.mark.parametrize("size", SIZES[:2], ids="{0[0]}x{0[1]}".format)
def test_launcher(snap_compare: Any, console: Build, size: tuple[int, int]) -> None:
    app, ready = shown(console, None)
    assert snap_compare(app, terminal_size=size, run_before=ready)


@pytest.mark.parametrize(
    ("key", "name"),
    [("question_mark", "help"), ("6", "log"), ("3", "bench"), ("b", "dialog"), ("2", "diagnosis"), ("4", "compare")],
)
@pytest.mark.parametrize("size", [(80, 24), (130, 40)], ids="{0[0]}x{0[1]}".format)
def test_other_screens(snap_compare: Any, console: Build, key: str, name: str, size: tuple[int, int]) -> None:
    app, ready = shown(console, herd())
    app.store.apply([BenchDone(source=SOURCE, t_ns=1, run=run.run, result=run) for run in (run_a(), run_b())])

    async def opened(pilot: Any) -> None:
        await ready(pilot)
        app.session.say([VERDICTS])  # type: ignore[union-attr]
        app.frame()
        await pilot.press(key)
        await pilot.pause()
        for field in app.screen.query(Input):
            field.cursor_blink = False  # a slow machine would take its picture half a blink later
        app.frame()
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=opened)


@pytest.fixture
def undiagnosed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is replayed gets no verdicts, which come from a thread at a moment of its own."""
    monkeypatch.setattr("tui.console.session.replayed._Diagnosis.update", lambda *_: [])


@pytest.mark.usefixtures("undiagnosed")
def test_replay(snap_compare: Any, console: Build, tmp_path: Path) -> None:
    last = record(herd(), 12.0, tmp_path / "a.herd")
    session = ReplaySession(tmp_path / "a.herd")
    session.open = session._index.start  # type: ignore[method-assign]
    app = console(session)

    async def reached(pilot: Any) -> None:
        instant = last - 4_000_000_000
        session.replay.go_to(instant)
        while app.store.output_rate.series.last_t_ns != instant or not session._index.rates:
            await pilot.pause(0.02)
            session.fill(app.store)  # no frame before everything is there: panels remember what they showed
        app.frame()
        await pilot.pause()
        app.frame()
        await pilot.pause()

    assert snap_compare(app, terminal_size=(120, 40), run_before=reached)
    session.close()


@pytest.mark.usefixtures("undiagnosed")
@pytest.mark.parametrize("size", SIZES[:2], ids="{0[0]}x{0[1]}".format)
def test_two_recordings_side_by_side(snap_compare: Any, console: Build, tmp_path: Path, size: tuple[int, int]) -> None:
    before, after = tmp_path / "before.herd", tmp_path / "after.herd"
    record(herd(), 12.0, before, 6.0, "knob", "admission = greedy")
    record(balanced(start_ns=90_000_000 * MS), 10.0, after, 3.0, "knob", "admission = rebalance")
    app = console(recording=before, beside=after)

    async def reached(pilot: Any) -> None:
        first, second = app.sessions.replay, app.sessions.beside.second
        assert first is not None and second is not None
        # Both are to jump from their starts, not to play on from where they had come to.
        while second.replay.position_ns < 90_000_000 * MS + 3 * 1000 * MS:
            await pilot.pause(0.02)
        first.replay.pause()
        first.replay.go_to(herd().start_ns)
        while (first.replay.position_ns, second.replay.position_ns) != (herd().start_ns, 90_000_000 * MS):
            await pilot.pause(0.02)
        instant = herd().start_ns + 10 * 1000 * MS
        first.replay.go_to(instant)
        stores = (app.store, app.sessions.beside.store)
        there = instant + app.sessions.beside.offset_ns()
        while [store.output_rate.series.last_t_ns for store in stores] != [instant, there] or not first._index.rates:
            await pilot.pause(0.02)
            app.sessions.fill()  # no frame before everything is there: panels remember what they showed
            there = instant + app.sessions.beside.offset_ns()
        app.store.verdict = VERDICT
        app.frame()
        await pilot.pause()
        app.frame()
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=reached)
    app.finish()


def test_fault(snap_compare: Any, console: Build) -> None:
    app, ready = shown(console, herd())

    async def died(pilot: Any) -> None:
        await ready(pilot)
        log = ["step 41", "torch.OutOfMemoryError: tried to allocate 2.00 GiB"]
        fault = Fault(source=SOURCE, t_ns=1, what="worker died", cause="killed by signal 9", rank=2, signal="SIGKILL",
                      last_log=log)  # fmt: skip
        app.session.say([fault])  # type: ignore[union-attr]
        app.frame()
        await pilot.pause()

    assert snap_compare(app, terminal_size=(100, 32), run_before=died)
