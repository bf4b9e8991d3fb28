"""At 80 columns nothing that matters is cut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from sessions.messages import BenchDone
from tests.tui.console.fakes import FakeChannel, FakeSession
from tests.tui.console.feed import SOURCE, herd
from tests.tui.console.recorded import record
from tests.tui.console.results import run_a, run_b
from tests.tui.console.verdicts import VERDICTS
from tui.console.app import ConsoleApp
from tui.console.panels.bars import TABS
from tui.console.panels.panel import Panel
from tui.console.screens.screen import ConsoleScreen

Build = Callable[..., ConsoleApp]


def texts(app: ConsoleApp, panel: str) -> list[str]:
    """The lines of a panel of the screen shown."""
    shown = app.screen.query_one(panel, Panel)
    return [shown.render_line(y).text for y in range(shown.content_size.height)]


async def test_the_launcher(console: Build) -> None:
    app = console()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app.frame()
        await pilot.pause()
        lines = texts(app, "#tagline") + texts(app, "#choices")
        assert any("Why is this" in line for line in lines)
        assert not [line for line in lines if "…" in line]


async def test_both_runs_and_their_ratio(console: Build) -> None:
    app = console(FakeSession(herd(), 1.0, FakeChannel()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app.store.apply([BenchDone(source=SOURCE, t_ns=1, run=run.run, result=run) for run in (run_a(), run_b())])
        await pilot.press("3")
        await pilot.pause()
        app.frame()
        await pilot.pause()
        lines = texts(app, "#comparison")
        row = next(line for line in lines if "throughput" in line)
        assert row.split() == ["throughput", "tok/s", "60", "60.1", "1.00x"]
        assert row.rstrip().endswith("1.00x")
        assert not any("95.6" in line for line in lines)
        await pilot.press("tab", "end")
        assert any(line.split()[:3] == ["throughput", "tok/s", "95.6"] for line in texts(app, "#comparison"))


async def test_the_verdict_names_the_key_that_fixes_it(console: Build) -> None:
    app = console(FakeSession(herd(), 1.0, FakeChannel()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app.store.apply([VERDICTS])
        app.frame()
        await pilot.pause()
        assert f"{app.view.key_of('verdict.apply')} fix: rebalance" in texts(app, "#verdict")[0]


async def footer(app: ConsoleApp, pilot: Pilot[int]) -> list[str]:
    """The lines at the bottom of the screen shown."""
    app.frame()
    await pilot.pause()
    app.frame()
    return texts(app, "#footer")


def keys(app: ConsoleApp) -> list[str]:
    """What the footer is to show besides the screens."""
    assert isinstance(app.screen, ConsoleScreen)
    return [f"{key} {title}" for _, key, title in app.screen.footer_entries()]


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (120, 40)], ids="{0[0]}x{0[1]}".format)
async def test_every_screen_shows_all_screens_and_its_main_keys(console: Build, size: tuple[int, int]) -> None:
    app = console(FakeSession(herd(), 1.0, FakeChannel()))
    async with app.run_test(size=size) as pilot:
        for number, (mode, _, _) in enumerate(TABS, 1):
            await pilot.press(str(number))
            lines = await footer(app, pilot)
            assert app.current_mode == mode
            assert f" {number} {mode}  " in lines[0]
            assert all(f" {n} {name}  " in lines[0] or f" {n} {brief}  " in lines[0]
                       for n, (name, brief, _) in enumerate(TABS, 1))  # fmt: skip
            assert {"? help", "q quit", "b measure", "v fix", "r record"} <= set(keys(app))
            assert not [key for key in keys(app) if key not in " ".join(lines)], (mode, lines)
            assert "…" not in "".join(lines)


async def test_two_recordings_show_the_keys_that_move_them(console: Build, tmp_path: Path) -> None:
    for name in ("a", "b"):
        record(herd(), 2.0, tmp_path / f"{name}.herd")
    app = console(recording=tmp_path / "a.herd", beside=tmp_path / "b.herd")
    async with app.run_test(size=(80, 24)) as pilot:
        lines = await footer(app, pilot)
        assert app.current_mode == "together"
        assert "? help  q quit  space hold  ← 10 s" in lines[-1]
        assert not [key for key in keys(app) if key not in lines[-1]]
        assert "…" not in lines[-1]
    app.finish()


async def test_where_not_all_keys_fit_the_way_to_the_others_is_shown(console: Build) -> None:
    app = console(FakeSession(herd(), 1.0, FakeChannel()))
    async with app.run_test(size=(40, 20)) as pilot:
        lines = await footer(app, pilot)
        assert lines[-1].startswith(" ? help  q quit")
        assert "…" not in lines[-1]


async def test_a_wider_terminal_gets_the_line_back(console: Build) -> None:
    app = console(FakeSession(herd(), 1.0, FakeChannel()))
    async with app.run_test(size=(80, 24)) as pilot:
        assert len(await footer(app, pilot)) == 2
        await pilot.resize_terminal(140, 40)
        await pilot.pause()
        assert len(await footer(app, pilot)) == 1
