from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sessions.messages import Command, Estimate, KnobRequest, ProfileReply, ProfileRequest, Reply, VerdictOn, Verdicts
from tests.tui.console.fakes import FakeChannel, FakeSession
from tests.tui.console.feed import SOURCE, herd
from tests.tui.console.verdicts import VERDICTS
from tui.console.app import ConsoleApp
from tui.console.panels.panel import Panel
from tui.console.store.outlook import verdict_line

Build = Callable[..., ConsoleApp]


def text_of(app: ConsoleApp, selector: str) -> str:
    panel = app.screen.query_one(selector, Panel)
    return "\n".join(panel.render_line(y).text for y in range(panel.content_size.height))


async def test_the_screen_shows_verdicts_evidence_and_the_last_prediction(console: Build) -> None:
    session = FakeSession(herd(), 1.0, FakeChannel())
    app = console(session)
    async with app.run_test(size=(130, 40)) as pilot:
        await pilot.pause()
        app.frame()
        session.say([VERDICTS])
        await pilot.press("2")
        await pilot.pause()
        app.frame()
        await pilot.pause()
        app.frame()
        measures, hypotheses, evidence = (text_of(app, name) for name in ("#measures", "#verdicts", "#evidence"))
        assert "Thundering herd" in measures and "95.6 tok/s" in measures and "270 tok/s (230-310)" in measures
        assert "n/a (spans of every stage are needed)" in measures and "predicted 1.0x, got 1.0x" in measures
        assert "■ Thundering herd" in hypotheses and "✓ Interconnect" in hypotheses and "? Framework" in hypotheses
        assert "+ 1.0 waves of 8" in evidence and "- but C is small" in evidence
        assert "sets admission to rebalance" in evidence


@pytest.mark.parametrize("keys", [("v",), ("2", "enter")])
async def test_a_fix_is_applied_by_a_key(console: Build, keys: tuple[str, ...]) -> None:
    channel = FakeChannel()
    session = FakeSession(herd(), 1.0, channel)
    app = console(session)
    async with app.run_test(size=(130, 40)) as pilot:
        await pilot.pause()
        session.say([VERDICTS])
        app.frame()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
            app.frame()
            await pilot.pause()
        asked = [(c.knob, c.value) for c in channel.asked if isinstance(c, KnobRequest)]
        assert asked == [("admission", "rebalance")]


async def test_without_a_cause_there_is_nothing_to_apply(console: Build) -> None:
    channel = FakeChannel()
    app = console(FakeSession(herd(), 1.0, channel))
    async with app.run_test(size=(130, 40)) as pilot:
        await pilot.pause()
        app.frame()
        await pilot.press("v")
        await pilot.pause()
        assert channel.asked == [] and "no verdict" in app.store.events[-1].text


def test_levels_of_the_verdict_line() -> None:
    assert verdict_line(VERDICTS).level == "problem"
    small = VerdictOn("host", "holds", Estimate(1.0, 1.05, 1.1), [], "")
    refuted = VerdictOn("herd", "refuted", None, [], "")
    unknown = VerdictOn("herd", "unknown", None, [], "")

    def level(*verdicts: VerdictOn) -> str:
        return verdict_line(Verdicts(source=SOURCE, t_ns=1, headline="x", verdicts=list(verdicts))).level

    assert level(refuted, small) == "warning"
    assert level(refuted, unknown) == "healthy"
    assert level(unknown, unknown) == "unknown"


class Profiled(FakeChannel):
    """Answers a profile request with traces that are there."""

    def __init__(self, traces: list[str]) -> None:
        super().__init__()
        self.traces = traces

    async def ask(self, command: Command, timeout_s: float) -> Reply:
        if isinstance(command, ProfileRequest):
            return ProfileReply(
                source=SOURCE, t_ns=1, id=command.id, to=self.source, ok=True, traces=self.traces,
                tokens_per_s_profiled=80.0, tokens_per_s_before=100.0,
            )  # fmt: skip
        return await super().ask(command, timeout_s)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


async def test_a_profile_opens_its_diagnosis(console: Build, shared_data: Path) -> None:
    traces = sorted(str(path) for path in (shared_data / "sglang-pp2-h200").glob("*.json.gz"))
    app = console(FakeSession(herd(), 1.0, Profiled(traces)))
    async with app.run_test(size=(130, 40)) as pilot:
        await pilot.pause()
        app.frame()
        await pilot.press("f")
        for _ in range(1200):
            await pilot.pause(0.05)
            app.frame()
            if app.view.apart is not None:
                break
        await pilot.pause()
        app.frame()
        assert app.current_mode == "diagnosis"
        assert app.view.apart is not None and "herd" in app.view.apart.verdicts.headline
        assert any("80 tok/s while profiling, 100 before" in event.text for event in app.store.events)
        await pilot.press("2")
        assert app.view.apart is None


async def test_traces_that_cannot_be_read_are_one_line(console: Build, tmp_path: Path) -> None:
    app = console(FakeSession(herd(), 1.0, Profiled([str(tmp_path / "nothing.json")])))
    async with app.run_test(size=(130, 40)) as pilot:
        await pilot.pause()
        app.frame()
        await pilot.press("f")
        for _ in range(400):
            await pilot.pause(0.05)
            if app.store.events[-1].category == "refused":
                break
        assert app.store.events[-1].text.startswith("profile: ")
