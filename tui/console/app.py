"""The console application: one store, one frame clock, the screens, and the actions bound to keys."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from platformdirs import user_data_path
from textual import events
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from tui.console.actions import ACTIONS, BY_ID, keys_shown
from tui.console.benchmarks import Benchmarks
from tui.console.control import Control
from tui.console.faults import Faults
from tui.console.frame_clock import FrameClock
from tui.console.guard import Guard
from tui.console.options import ConsoleOptions
from tui.console.panels.replay_bar import ReplayBar
from tui.console.profiles import Profiles
from tui.console.recordings import Recordings
from tui.console.replays import Replays
from tui.console.runs import Runs
from tui.console.screens.launcher import LauncherScreen
from tui.console.screens.modes import MODES, screen_of
from tui.console.screens.screen import ConsoleScreen
from tui.console.session.choices import from_choice, from_options
from tui.console.session.gpus_here import gpu_names
from tui.console.session.session import Session
from tui.console.sessions import Sessions
from tui.console.spans import Spans
from tui.console.store.outlook import first_cause
from tui.console.store.store import Store
from tui.console.view import View

if TYPE_CHECKING:
    from tui.console.screens.diagnosis import DiagnosisScreen
    from tui.console.screens.sessions import SessionsScreen

TOUCHES = (events.Key, events.MouseDown, events.MouseScrollDown, events.MouseScrollUp)
INTERRUPT_WINDOW_S = 3.0


class ConsoleApp(App[int]):
    """Shows one session at a time; without one, the launcher."""

    CSS_PATH = "console.tcss"
    TITLE = "herdscope"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(action.key, f"do('{action.id}')", action.title, show=False, id=action.id) for action in ACTIONS),
        Binding("ctrl+c", "interrupt", "Quit", show=False, priority=True, system=True),
    ]

    def __init__(
        self,
        options: ConsoleOptions,
        session: Session | None = None,
        *,
        data: Path | None = None,
        clock: bool = True,
        guard: bool = True,
    ) -> None:
        """`session` overrides what the options ask for, and `data` the user's data folder. `clock` False leaves ticking
        to the caller (see `frame`); `guard` False leaves signals alone. All for tests."""
        super().__init__()
        self.options = options
        self.store = Store()
        self.view = View(colour=not self.no_color, keys=keys_shown(options.keymap))
        self.control = Control(self.store, self.view)
        self.benchmarks = Benchmarks(self.store, self.view, self.control)
        self.frames = FrameClock(os.environ)
        self.sessions = Sessions(self.store)
        self._first = session
        data = data or user_data_path("herdscope")
        self.runs = Runs(self.store, data / "results")
        self.recordings = Recordings(self.store, self.view, data / "sessions", options.record)
        self.replays = Replays(self, self.sessions, self.recordings)
        self.profiles = Profiles(self.store, self.view, self.show_diagnosis)
        self.spans = Spans(self.store, self.view, self.sessions, self.show_diagnosis)
        self.recordings_folder = data / "sessions"
        self._clock = clock
        self._guard = Guard(self.leave, self.end_session) if guard else None
        self._interrupted_at = -INTERRUPT_WINDOW_S
        self._faults = Faults(self, self.restart_engine)
        self._launcher = LauncherScreen(self.store, self.view, options.concurrency, gpu_names if clock else None)

    def on_mount(self) -> None:
        self.set_keymap(self.options.keymap)
        self.add_mode("launcher", lambda: self._launcher)
        for mode in MODES:
            self.add_mode(mode, functools.partial(screen_of, mode, self))
        if self._guard is not None:
            self._guard.start()
        self._open_first()
        if self._clock:
            self.set_timer(self.frames.wait_s(time.monotonic()), self._next_frame)

    def _open_first(self) -> None:
        options = self.options
        if options.recording is not None and options.beside is not None:
            if not self.replays.open_beside(options.recording, options.beside, options.align):
                self.open_launcher()
        elif (first := self._first or from_options(options)) is not None:
            self._open(first)
        else:
            self.open_launcher()

    async def on_event(self, event: events.Event) -> None:
        """Keys and the mouse pass here before they reach what has the focus."""
        if isinstance(event, TOUCHES):
            self._launcher.touched()
        await super().on_event(event)

    # --- sessions --------------------------------------------------------------------------------------------------

    @property
    def session(self) -> Session | None:
        """The session that is shown."""
        return self.sessions.shown

    def open_launcher(self) -> None:
        """End this session and choose another."""
        if self.session is not None:
            self._end_helpers()
            self.sessions.forget()
            self.view.replay = None
            self.control.use(None, "nothing is open")
        self.switch_mode("launcher")

    def on_launcher_screen_picked(self, event: LauncherScreen.Picked) -> None:
        """Open what was chosen."""
        try:
            session = from_choice(event.choice, event.path)
        except Exception as error:  # whatever a choice cannot be opened for, the operator stays here and reads why
            self.notify(str(error), severity="error", timeout=10)
            return
        self._open(session)

    def _open(self, session: Session) -> None:
        self.sessions.show(session)
        self.switch_mode("live")

    def _end_helpers(self) -> None:
        self.benchmarks.stop()
        self.recordings.stop()

    def end_session(self) -> None:
        """End everything that was started. May be called from any thread."""
        self._end_helpers()
        self.sessions.close()

    def restart_engine(self) -> None:
        """Start the engine again, where it is ours."""
        if self.session is not None and self.session.restartable:
            self.store.note("engine", "restarting the engine")
            self.store.fault = None
            self.session.restart()
        else:
            self.store.note("refused", "this engine was not started here: restart it where it runs")

    # --- the frame clock ---------------------------------------------------------------------------------------------

    def _next_frame(self) -> None:
        started = time.perf_counter()
        self.frame()
        self.frames.drawn(self._backlog(), time.perf_counter() - started)
        self.set_timer(self.frames.wait_s(time.monotonic()), self._next_frame)

    def frame(self) -> None:
        """One frame: what has come goes into the store, then the panels that differ are drawn."""
        session = self.session
        if session is not None:
            self.sessions.fill()
            self.view.status = session.failure or session.status
            self.view.replay = self.sessions.replay.state() if self.sessions.replay is not None else None
            self.spans.tick()
            self.control.use(session.channel, session.read_only)
            self.benchmarks.tick()
            self.recordings.use(self.sessions.live_channel)
            self.recordings.tick()
            self._faults.show(self.store.fault, session.restartable)
        for screen in self.screen_stack:
            if isinstance(screen, ConsoleScreen):
                screen.tick()

    def _backlog(self) -> int:
        """Writes that the terminal has not taken yet. Textual keeps them in its driver's writer thread."""
        writer = getattr(self._driver, "_writer_thread", None)
        queue = getattr(writer, "_queue", None)
        return int(queue.qsize()) if queue is not None else 0

    # --- actions -----------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In the launcher only what needs no session works."""
        if action == "do" and self.session is None:
            return BY_ID[str(parameters[0])].without_session
        return True

    def action_do(self, action: str) -> None:
        """Run an action of the table."""
        BY_ID[action].run(self)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The command palette offers the table of actions."""
        for action in ACTIONS:
            if action.id != "commands" and (action.without_session or self.session is not None):
                hint = f"{action.group} · key {self.view.key_of(action.id)}"
                yield SystemCommand(action.title, hint, functools.partial(action.run, self))

    def action_interrupt(self) -> None:
        """Ctrl-C: the second within three seconds quits."""
        now = time.monotonic()
        if now - self._interrupted_at < INTERRUPT_WINDOW_S:
            self.leave()
            return
        self._interrupted_at = now
        self.notify("Press Ctrl-C again to quit and end the engine", timeout=INTERRUPT_WINDOW_S)

    def show(self, mode: str) -> None:
        """Switch to a screen; the diagnosis screen, asked for again, goes from a profile or a span back to now."""
        if self.current_mode != mode:
            self.switch_mode(mode)
        elif mode == "diagnosis":
            self.view.apart = None

    def show_diagnosis(self) -> None:
        """The diagnosis screen, with whatever is looked at there."""
        self.switch_mode("diagnosis")

    def show_help(self) -> None:
        """The help of this screen and of the focused panel."""
        from tui.console.screens.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.view, self.screen))

    def start_benchmark(self) -> None:
        """Ask what to measure, then measure it."""
        self.benchmarks.ask(self, self.session.address if self.session is not None else None)

    def hold(self) -> None:
        """Hold the time lines still: pause the replay, or freeze the live ones."""
        if not self.replays.toggle():
            self.control.freeze()

    def apply_first_verdict(self) -> None:
        """Turn the knob that the first verdict names."""
        verdicts = self.store.verdicts
        self.control.apply(first_cause(verdicts) if verdicts is not None else None)

    def on_diagnosis_screen_chosen(self, event: DiagnosisScreen.Chosen) -> None:
        """Turn the knob that the chosen verdict names."""
        self.control.apply(event.verdict)

    def profile(self) -> None:
        """Record a few steps of every rank, and diagnose them."""
        self.profiles.start(self.session.channel if self.session is not None else None)

    # --- recording and replay -------------------------------------------------------------------------------------

    def on_sessions_screen_picked(self, event: SessionsScreen.Picked) -> None:
        """Replay a recording, or two side by side."""
        if len(event.paths) == 1:
            self.replays.open(event.paths[0])
        else:
            self.replays.open_beside(event.paths[0], event.paths[1])

    def on_replay_bar_sought(self, event: ReplayBar.Sought) -> None:
        """The scrub bar was clicked."""
        self.replays.go_to_share(event.share)

    def leave(self) -> None:
        """Quit."""
        self.exit(0)

    def finish(self) -> None:
        """After the application has ended: end what the session started, then let go of the signals."""
        self.end_session()
        if self._guard is not None:
            self._guard.stop()


def run_console(options: ConsoleOptions) -> int:
    """Run the console on this terminal until the operator leaves; the command's exit code."""
    app = ConsoleApp(options)
    try:
        code = app.run()
    finally:
        app.finish()
    return code if code is not None else app.return_code or 0
