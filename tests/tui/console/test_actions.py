from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from sessions.knobs import Knobs
from sessions.messages import Fault, KnobRequest, LoadRequest, LogLine, LogLines
from tests.tui.console.fakes import FakeChannel, FakeSession
from tests.tui.console.feed import SOURCE, herd
from tui.console.actions import ACTIONS, BY_ID
from tui.console.app import ConsoleApp
from tui.console.screens.bench_dialog import BenchDialog
from tui.console.screens.fault import FaultDialog
from tui.console.screens.help import HelpScreen
from tui.console.screens.log import LogPanel

Build = Callable[..., ConsoleApp]
DEPTH_4 = Knobs(async_depth=4, admission="capped", max_micro_batch=64, cuda_graphs=True)


async def drawn(pilot: Pilot[object], app: ConsoleApp) -> None:
    await pilot.pause()
    app.frame()
    await pilot.pause()


def knob_session(**more: object) -> FakeSession:
    return FakeSession(herd(knobs=DEPTH_4), 2.0, FakeChannel(**more))  # type: ignore[arg-type]


def asked(session: FakeSession) -> list[tuple[object, ...]]:
    """What the channel was asked for."""
    assert isinstance(session.channel, FakeChannel)
    out: list[tuple[object, ...]] = []
    for command in session.channel.asked:
        if isinstance(command, KnobRequest):
            out.append((command.knob, command.value))
        elif isinstance(command, LoadRequest):
            out.append(("load", command.concurrency))
    return out


COMMANDS = {
    "knob.async_depth.up": ("async_depth", 5),
    "knob.async_depth.down": ("async_depth", 3),
    "knob.admission.next": ("admission", "decode-cap"),
    "knob.admission.previous": ("admission", "greedy"),
    "knob.max_micro_batch.up": ("max_micro_batch", 128),
    "knob.max_micro_batch.down": ("max_micro_batch", 32),
    "knob.cuda_graphs.toggle": ("cuda_graphs", False),
    "knob.parallelism.toggle": ("parallelism", "ep"),
    "load.up": ("load", 32),
    "load.down": ("load", 8),
    "load.more": ("load", 17),
    "load.less": ("load", 15),
    "load.pause": ("load", 0),
}


@pytest.mark.parametrize("action", sorted(COMMANDS))
@pytest.mark.parametrize("way", ["key", "palette"])
async def test_every_command_reaches_the_engine(console: Build, action: str, way: str) -> None:
    session = knob_session()
    app = console(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await drawn(pilot, app)
        if way == "key":
            await pilot.press(BY_ID[action].key.split(",")[0])
        else:
            commands = {command.title: command for command in app.get_system_commands(app.screen)}
            commands[BY_ID[action].title].callback()
        await pilot.pause()
        assert asked(session) == [COMMANDS[action]]


SCREENS_AND_VIEW = {
    "screen.live": lambda app: app.current_mode == "live",
    "screen.bench": lambda app: app.current_mode == "bench",
    "screen.diagnosis": lambda app: app.current_mode == "diagnosis",
    "screen.compare": lambda app: app.current_mode == "compare",
    "screen.sessions": lambda app: app.current_mode == "sessions",
    "screen.log": lambda app: app.current_mode == "log",
    "help": lambda app: isinstance(app.screen, HelpScreen),
    "commands": lambda app: type(app.screen).__name__ == "CommandPalette",
    "launcher": lambda app: app.current_mode == "launcher" and app.session is None,
    "quit": lambda app: app.return_value == 0,
    "view.freeze": lambda app: app.view.frozen_ns == app.store.now_ns,
    "view.finer": lambda app: app.view.zoom == -1,
    "view.coarser": lambda app: app.view.zoom == 1,
    "view.chart_shorter": lambda app: app.view.chart_s == 30,
    "view.chart_longer": lambda app: app.view.chart_s == 120,
    "bench.start": lambda app: isinstance(app.screen, BenchDialog),
    "bench.cancel": lambda app: not app.benchmarks.running,
    "engine.restart": lambda app: app.session.restarts == 1,
}


@pytest.mark.parametrize("action", sorted(SCREENS_AND_VIEW))
async def test_every_other_action_by_its_key(console: Build, action: str) -> None:
    app = console(knob_session())
    async with app.run_test(size=(120, 40)) as pilot:
        await drawn(pilot, app)
        await pilot.press(BY_ID[action].key.split(",")[0])
        await pilot.pause()
        assert SCREENS_AND_VIEW[action](app)


TESTED_WITH_A_RECORDING = {
    *("verdict.apply", "profile", "record", "record.save"),
    *(f"replay.{name}" for name in ("look_back", "live", "back", "step", "back_10", "on_10", "next_mark", "last_mark")),
    *(f"replay.{name}" for name in ("faster", "slower", "go_to", "span_start", "span_end")),
    "screen.together",
}
"""See test_recording_keys.py, test_together.py and test_diagnosis_screen.py."""


def test_every_action_is_tested() -> None:
    tested = {*COMMANDS, *SCREENS_AND_VIEW, *TESTED_WITH_A_RECORDING}
    assert {action.id for action in ACTIONS} == tested


def test_ids_and_keys_are_unique() -> None:
    keys = [key for action in ACTIONS for key in action.key.split(",")]
    assert len(keys) == len(set(keys))
    assert len(BY_ID) == len(ACTIONS)


async def test_a_click_on_a_knobs_line_turns_it(console: Build) -> None:
    session = knob_session()
    app = console(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await drawn(pilot, app)
        await pilot.click("#knobs", offset=(10, 2))
        await pilot.pause()
        assert asked(session) == [("admission", "decode-cap")]


async def test_a_click_on_the_footer_switches_screens(console: Build) -> None:
    app = console(knob_session())
    async with app.run_test(size=(120, 40)) as pilot:
        await drawn(pilot, app)
        await pilot.click("#footer", offset=(11, 0))
        await drawn(pilot, app)
        assert app.current_mode == "diagnosis"


async def test_fast_key_presses_build_on_each_other_and_arrive_in_order(console: Build) -> None:
    session = knob_session(hold=True)
    app = console(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await drawn(pilot, app)
        await pilot.press("d", "d", "d", "D")
        await pilot.pause()
        assert asked(session) == [("async_depth", value) for value in (5, 6, 7, 6)]
        assert app.view.pending == {"async_depth": 6}


async def test_a_keymap_replaces_a_key_and_what_is_shown_for_it(console: Build) -> None:
    session = knob_session()
    app = console(session, keymap={"knob.async_depth.up": "u"})
    async with app.run_test(size=(120, 40)) as pilot:
        await drawn(pilot, app)
        assert app.view.key_of("knob.async_depth.up") == "u"
        await pilot.press("d")
        await pilot.pause()
        assert asked(session) == []
        await pilot.press("u")
        await pilot.pause()
        assert asked(session) == [("async_depth", 5)]


async def test_a_refusal_is_an_event_with_its_reason(console: Build) -> None:
    app = console(knob_session(ok=False, reason="switching already"))
    async with app.run_test(size=(120, 40)) as pilot:
        await drawn(pilot, app)
        await pilot.press("d")
        await drawn(pilot, app)
        assert app.store.events[-1].text == "async_depth: switching already"
        assert app.view.pending == {}


async def test_a_refusal_shows_in_the_footer_for_a_while(console: Build) -> None:
    session = knob_session(ok=False, reason="switching already")
    app = console(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await drawn(pilot, app)
        await pilot.press("d")
        await drawn(pilot, app)
        footer = app.screen.query_one("#footer")
        assert "async_depth: switching already" in footer.render_line(1).text
        assert "2 diagnosis" in footer.render_line(0).text
        session.now_ns += 5_000_000_000
        await drawn(pilot, app)
        assert "switching already" not in footer.render_line(1).text


async def test_no_answer_is_an_event_too(console: Build) -> None:
    app = console(knob_session(silent=True))
    async with app.run_test(size=(120, 40)) as pilot:
        await drawn(pilot, app)
        await pilot.press("a")
        await drawn(pilot, app)
        assert app.store.events[-1].category == "refused"
        assert "no reply" in app.store.events[-1].text
        assert app.view.pending == {}


async def test_an_unavailable_knob_is_not_asked_for(console: Build) -> None:
    session = FakeSession(herd(gpus=0), 1.0, FakeChannel())
    app = console(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await drawn(pilot, app)
        await pilot.press("g")
        await drawn(pilot, app)
        assert asked(session) == []
        assert app.store.events[-1].text == "cuda_graphs is unavailable: no CUDA device"


async def test_without_a_connection_a_command_says_why(console: Build) -> None:
    app = console(FakeSession(herd(), 1.0, None))
    async with app.run_test(size=(120, 40)) as pilot:
        await drawn(pilot, app)
        await pilot.press("d")
        await drawn(pilot, app)
        assert app.store.events[-1].text == "async_depth: no engine is connected"


async def test_ctrl_c_twice_quits_and_once_does_not(console: Build) -> None:
    app = console(knob_session())
    async with app.run_test(size=(80, 24)) as pilot:
        await drawn(pilot, app)
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert app.return_value is None
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert app.return_value == 0


async def test_finish_ends_the_session(console: Build) -> None:
    session = knob_session()
    app = console(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await drawn(pilot, app)
        await pilot.press("q")
    app.finish()
    assert session.closed >= 1


FAULT = Fault(
    source=SOURCE, t_ns=1, what="worker died", cause="killed by signal 9", rank=2, signal="SIGKILL",
    last_log=["step 41", "step 42"],
)  # fmt: skip


@pytest.mark.parametrize(("key", "restarts"), [("r", 1), ("escape", 0)])
async def test_a_fault_names_rank_cause_and_last_lines_and_offers_a_restart(
    console: Build, key: str, restarts: int
) -> None:
    session = knob_session()
    app = console(session)
    async with app.run_test(size=(100, 32)) as pilot:
        await drawn(pilot, app)
        session.say([FAULT])
        await drawn(pilot, app)
        assert isinstance(app.screen, FaultDialog)
        text = str(app.screen.query_one("#fault-text").render())
        for part in ("rank 2", "killed by signal 9", "SIGKILL", "step 42", "restart the engine"):
            assert part in text
        await pilot.press(key)
        await drawn(pilot, app)
        assert session.restarts == restarts
        assert not isinstance(app.screen, FaultDialog)


async def test_a_fault_of_a_foreign_engine_offers_no_restart(console: Build) -> None:
    session = knob_session()
    session.restartable = False
    app = console(session)
    async with app.run_test(size=(100, 32)) as pilot:
        await drawn(pilot, app)
        session.say([FAULT])
        await drawn(pilot, app)
        await pilot.press("r")
        await drawn(pilot, app)
        assert session.restarts == 0


async def test_the_log_follows_scrolls_and_filters_by_rank(console: Build) -> None:
    session = knob_session()
    app = console(session)
    async with app.run_test(size=(100, 20)) as pilot:
        await drawn(pilot, app)
        lines = [LogLine(i, (None, 0, 1)[i % 3], f"line {i}") for i in range(90)]
        session.say([LogLines(source=SOURCE, t_ns=1, lines=lines)])
        await pilot.press("6")
        await drawn(pilot, app)
        panel = app.screen.query_one(LogPanel)

        def text() -> str:
            return "\n".join(panel.render_line(y).text for y in range(panel.content_size.height))

        assert "line 89" in text()
        await pilot.press("up")
        assert "line 89" not in text() and "line 88" in text()
        await pilot.press("end", "right")
        assert panel.only == -1 and "line 87" in text() and "line 88" not in text()
        await pilot.press("right")
        assert panel.only == 0 and "line 88" in text() and "line 89" not in text()


async def test_the_bench_dialog_refuses_nonsense_and_keeps_the_text(console: Build) -> None:
    app = console(knob_session())
    async with app.run_test(size=(100, 32)) as pilot:
        await drawn(pilot, app)
        await pilot.press("b")
        await pilot.pause()
        dialog = app.screen
        dialog.query_one("#concurrencies").value = "1,zero"
        await pilot.press("enter")
        await pilot.pause()
        assert app.screen is dialog
        assert "whole number" in str(dialog.query_one("#bench-note").render())


async def test_tasks_do_not_outlive_their_answers(console: Build) -> None:
    session = knob_session()
    app = console(session)
    async with app.run_test(size=(100, 32)) as pilot:
        await drawn(pilot, app)
        await pilot.press("d", "a", "m")
        await pilot.pause()
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("ask ")]


async def test_what_a_knob_cost_is_said_once(console: Build) -> None:
    """Its reply comes to the asker, and to everybody who watches."""
    app = console(knob_session())
    async with app.run_test(size=(120, 40)) as pilot:
        await drawn(pilot, app)
        await pilot.press("a")
        await drawn(pilot, app)
        assert [event.text for event in app.store.events if "took" in event.text] == [
            "admission took 2 ms, 0 requests recomputed"
        ]
