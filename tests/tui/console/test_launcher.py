from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tui.console.fakes import FakeSession
from tests.tui.console.feed import herd
from tests.tui.console.recorded import record
from tui.console.app import ConsoleApp
from tui.console.screens.ask_path import AskPath
from tui.console.screens.launcher import ChoicePanel, LauncherScreen
from tui.console.session import choices as choices_module
from tui.console.session.choices import choices
from tui.console.session.replayed import ReplaySession

Build = Callable[..., ConsoleApp]


def test_with_gpus_the_engine_on_them_comes_first() -> None:
    offered = choices(["NVIDIA H200"] * 8, 16)
    assert offered[0].id == "gpu" and "8x NVIDIA H200" in offered[0].title and offered[0].open is not None
    assert [choice.id for choice in offered] == ["gpu", "cpu", "emulated", "attach", "recording"]


def test_without_gpus_the_cpu_comes_first_and_the_gpu_line_says_why_not() -> None:
    offered = choices([], 16)
    assert offered[0].id == "cpu"
    assert offered[-1].id == "gpu" and offered[-1].unavailable == "no NVIDIA GPU found"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """What would have been started; a synthetic session is shown instead."""
    asked: list[dict[str, object]] = []

    def own(chosen: dict[str, object], concurrency: int) -> FakeSession:
        asked.append(chosen)
        return FakeSession(herd(), 1.0)

    monkeypatch.setattr(choices_module, "own_session", own)
    return asked


async def counted_down(app: ConsoleApp, press: str | None) -> None:
    now = 100.0
    async with app.run_test(size=(100, 36)) as pilot:
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, LauncherScreen)
        screen._counting = True
        screen._now_s = lambda: now
        screen.found([])
        for _ in range(5):
            app.frame()
            if press is not None:
                await pilot.press(press)
            now += 0.9
            await pilot.pause()


async def test_the_first_choice_starts_by_itself_after_three_seconds(
    console: Build, opened: list[dict[str, object]]
) -> None:
    app = console()
    await counted_down(app, None)
    assert opened == [{"device": "cpu"}]
    assert app.session is not None


@pytest.mark.parametrize("key", ["down", "tab", "x"])
async def test_any_key_stops_the_countdown(console: Build, opened: list[dict[str, object]], key: str) -> None:
    app = console()
    await counted_down(app, key)
    assert opened == [] and app.session is None


async def test_the_cursor_chooses(console: Build, opened: list[dict[str, object]]) -> None:
    app = console()
    async with app.run_test(size=(100, 36)) as pilot:
        await pilot.pause()
        await pilot.press("down", "enter")
        await pilot.pause()
        assert [choice["emulate"] for choice in opened] == ["8x-rtx-pro-6000"]
        assert app.current_mode == "live"


async def test_a_choice_that_cannot_be_had_stays_here(console: Build, opened: list[dict[str, object]]) -> None:
    app = console()
    async with app.run_test(size=(100, 36)) as pilot:
        await pilot.pause()
        await pilot.press("end", "enter")
        await pilot.pause()
        assert app.current_mode == "launcher" and opened == []


async def test_a_recording_is_asked_for_and_opened(console: Build, tmp_path: Path) -> None:
    record(herd(), 2.0, tmp_path / "a.herd")
    app = console()
    async with app.run_test(size=(100, 36)) as pilot:
        await pilot.pause()
        panel = app.screen.query_one(ChoicePanel)
        panel.move([choice.id for choice in panel.offered].index("recording"))
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, AskPath)
        app.screen.query_one("#path").value = str(tmp_path / "a.herd")  # type: ignore[attr-defined]
        await pilot.press("enter")
        await pilot.pause()
        app.frame()
        assert isinstance(app.session, ReplaySession)
    app.finish()


async def test_a_file_that_is_no_recording_is_one_line_and_the_launcher_stays(console: Build, tmp_path: Path) -> None:
    (tmp_path / "a.herd").write_bytes(b"something else")
    app = console()
    async with app.run_test(size=(100, 36)) as pilot:
        await pilot.pause()
        panel = app.screen.query_one(ChoicePanel)
        panel.move([choice.id for choice in panel.offered].index("recording"))
        await pilot.press("enter")
        await pilot.pause()
        app.screen.query_one("#path").value = str(tmp_path / "a.herd")  # type: ignore[attr-defined]
        await pilot.press("enter")
        await pilot.pause()
        assert app.session is None and app.current_mode == "launcher"


async def test_in_the_launcher_keys_of_a_session_do_nothing(console: Build) -> None:
    app = console()
    async with app.run_test(size=(100, 36)) as pilot:
        await pilot.pause()
        await pilot.press("d", "1", "b", "r")
        await pilot.pause()
        assert app.current_mode == "launcher" and len(app.store.events) == 0
