"""A replay shows, cell by cell, what the live session showed: characters, colours, bold and all.

The whole terminal is compared. Left out is only what a replay adds:
- the two lines of the scrub bar (so the replay's terminal is two lines taller);
- in the first line the badge REPLAY with the blank after it, which stands over whatever the live line has there;
- around the fault's dialog, which is centred, everything but the dialog: the screens are compared after it is closed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from sessions.recording import meta
from sessions.recording.recorder import Recorder
from tests.tui.console.broadcast import Broadcast, BroadcastSession, FrozenClock
from tests.tui.console.cells import Cells, region_of, screen_cells, text_of
from tests.tui.console.evening import END_S, START_NS, evening
from tests.tui.console.feed import MS, WALL
from tui.console import recordings
from tui.console.app import ConsoleApp
from tui.console.panels.replay_bar import ReplayBar
from tui.console.screens.fault import FaultDialog
from tui.console.session.replayed import ReplaySession

Build = Callable[..., ConsoleApp]
SCREENS = ("live", "diagnosis", "bench", "compare", "log")
INSTANTS = {
    "early": 2.0,
    "a verdict": 8.3,
    "the knob turned": 12.7,
    "one result": 33.1,
    "during a benchmark": 42.4,
    "longer than any frame is kept": 71.9,
    "after the fault": 78.2,
}
BADGE = " REPLAY  "
BETWEEN_FRAMES = 7
"""Ticks from one frame of the live console to the next: frames need not fall on the instants compared."""


@pytest.fixture(autouse=True)
def same_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder takes itself to run on the host of the made-up engine."""
    origin = meta.Origin(t_ns=START_NS, wall_ns=WALL, host="host", command_line=[], versions={})
    monkeypatch.setattr(meta, "origin", lambda command_line=None: origin)


async def settled(pilot: Pilot[object], app: ConsoleApp) -> None:
    """A frame, and once more for what the first one laid out anew."""
    for _ in range(2):
        app.frame()
        await pilot.pause()


async def pictures(pilot: Pilot[object], app: ConsoleApp) -> dict[str, Cells]:
    """Every screen's cells, without the scrub bar's lines; of a fault's dialog those inside it."""
    await settled(pilot, app)
    found = {}
    if isinstance(app.screen, FaultDialog):
        found["dialog"] = region_of(screen_cells(app), app.screen.query_one("#fault-box").region)
        await pilot.press("escape")
        await pilot.pause()
    for screen in SCREENS:
        app.show(screen)
        await pilot.pause()
        await settled(pilot, app)
        cells = screen_cells(app)
        bar = app.screen.query_one(ReplayBar)
        if bar.display:
            del cells[bar.region.y : bar.region.bottom]
        found[screen] = cells
    app.show("live")
    await pilot.pause()
    return found


def assert_same(live: dict[str, Cells], replay: dict[str, Cells], when: str) -> None:
    assert live.keys() == replay.keys()
    for screen, cells in live.items():
        again = replay[screen]
        if screen != "dialog":
            at = text_of(again)[0].index(BADGE)
            cells, again = ([first[:at] + first[at + len(BADGE) :], *rest] for first, *rest in (cells, again))
        for y, (line, line_again) in enumerate(zip(cells, again, strict=True)):
            told = f"{when}, {screen} screen, line {y}"
            assert text_of([line_again]) == text_of([line]), told
            assert line_again == line, told


async def replayed(pilot: Pilot[object], app: ConsoleApp, session: ReplaySession, t_ns: int) -> dict[str, Cells]:
    """The screens of a replay at an instant, once everything is there."""
    session.replay.pause()
    session.replay.go_to(t_ns)
    deadline = time.monotonic() + 30
    while "host" not in app.store.hosts or app.store.hosts["host"].t_ns != t_ns or session._index.diagnosed is None:
        assert time.monotonic() < deadline, "the replay did not get there"
        await pilot.pause(0.01)
        app.frame()
    return await pictures(pilot, app)


def instant(when: str) -> int:
    """On the session's clock."""
    return START_NS + round(INSTANTS[when] * 10) * 100 * MS


async def lived(
    pilot: Pilot[object], app: ConsoleApp, channel: Broadcast, clock: FrozenClock, until_s: int = END_S
) -> dict[str, dict[str, Cells]]:
    """The evening, live; the screens at each instant."""
    when = {instant(name): name for name in INSTANTS}
    taken = {}
    for tick, (now_ns, messages) in enumerate(evening()[: until_s * 10]):
        clock.t_ns = now_ns
        for message in messages:
            channel.publish(message)
        if now_ns in when:
            taken[when[now_ns]] = await pictures(pilot, app)
        elif tick % BETWEEN_FRAMES == 0:
            app.frame()
            await asyncio.sleep(0)
    return taken


@pytest.mark.parametrize("size", [(80, 24), (130, 40)], ids="{0[0]}x{0[1]}".format)
async def test_a_replay_shows_the_cells_of_the_live_session(
    console: Build, tmp_path: Path, size: tuple[int, int]
) -> None:
    channel, clock = Broadcast(), FrozenClock(START_NS)
    recorder = Recorder(channel, tmp_path / "evening.herd", clock=clock)
    app = console(BroadcastSession(channel, clock))
    async with app.run_test(size=size) as pilot:
        live = await lived(pilot, app, channel, clock)
    recorder.close()
    app.finish()
    assert live.keys() == INSTANTS.keys() and "dialog" in live["after the fault"]

    session = ReplaySession(tmp_path / "evening.herd")
    session.open = session._index.start  # type: ignore[method-assign]
    again = console(session)
    width, height = size
    async with again.run_test(size=(width, height + ReplayBar.LINES)) as pilot:
        # Not in the order in which it happened: what an instant shows does not depend on what was shown before.
        for when in sorted(INSTANTS, key=lambda name: -INSTANTS[name] % 31):
            assert_same(live[when], await replayed(pilot, again, session, instant(when)), when)
    session.close()


async def test_looking_back_shows_what_the_session_showed(
    console: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "FLIGHT_MINUTES", 1e6)  # made-up time is long ago
    channel, clock = Broadcast(), FrozenClock(START_NS)
    app = console(BroadcastSession(channel, clock))
    width, height = 110, 36
    async with app.run_test(size=(width, height)) as pilot:
        await pilot.pause()
        app.frame()  # from here on the last minutes are kept
        live = await lived(pilot, app, channel, clock, until_s=36)
        assert len(live) == 4
        await pilot.resize_terminal(width, height + ReplayBar.LINES)
        await pilot.press("T")
        session = app.sessions.replay
        assert session is not None
        for when in reversed(live):
            clock.t_ns += 100 * MS  # the session goes on behind it
            assert_same(live[when], await replayed(pilot, app, session, instant(when)), when)
    app.finish()
