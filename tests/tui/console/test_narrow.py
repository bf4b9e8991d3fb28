"""At 80 columns nothing that matters is cut."""

from __future__ import annotations

from collections.abc import Callable

from sessions.messages import BenchDone
from tests.tui.console.fakes import FakeChannel, FakeSession
from tests.tui.console.feed import SOURCE, herd
from tests.tui.console.results import run_a, run_b
from tests.tui.console.verdicts import VERDICTS
from tui.console.app import ConsoleApp
from tui.console.panels.panel import Panel

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


async def test_the_verdict_names_the_key_that_fixes_it(console: Build) -> None:
    app = console(FakeSession(herd(), 1.0, FakeChannel()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app.store.apply([VERDICTS])
        app.frame()
        await pilot.pause()
        assert f"{app.view.key_of('verdict.apply')} fix: rebalance" in texts(app, "#verdict")[0]
