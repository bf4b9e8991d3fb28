"""The console application: one store, one frame clock, the screens, and the actions bound to keys."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from tui.console.actions import ACTIONS, BY_ID, keys_shown
from tui.console.benchmarks import Benchmarks
from tui.console.control import Control
from tui.console.frame_clock import FrameClock
from tui.console.guard import Guard
from tui.console.options import ConsoleOptions
from tui.console.screens.bench import BenchScreen
from tui.console.screens.bench_dialog import BenchDialog
from tui.console.screens.fault import FaultDialog
from tui.console.screens.help import HelpScreen
from tui.console.screens.launcher import LauncherScreen
from tui.console.screens.live import LiveScreen
from tui.console.screens.log import LogScreen
from tui.console.screens.screen import ConsoleScreen
from tui.console.session.bench_runner import BenchRequest
from tui.console.session.choices import from_choice, from_options
from tui.console.session.gpus_here import gpu_names
from tui.console.session.session import Session
from tui.console.store.store import Store
from tui.console.view import View

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
        results: Path | None = None,
        clock: bool = True,
        guard: bool = True,
    ) -> None:
        """`session` overrides what the options ask for, and `results` the folder of kept benchmark results. `clock`
        False leaves ticking to the caller (see `frame`); `guard` False leaves signals alone. All for tests."""
        super().__init__()
        self.options = options
        self.store = Store()
        self.view = View(colour=not self.no_color, keys=keys_shown(options.keymap))
        self.control = Control(self.store, self.view)
        self.benchmarks = Benchmarks(self.store, self.view, self.control)
        self.frames = FrameClock(os.environ)
        self.session = session
        self._results = results
        self._clock = clock
        self._guard = Guard(self.leave, self.end_session) if guard else None
        self._interrupted_at = -INTERRUPT_WINDOW_S
        self._fault_shown: object = None
        self._gpus: list[str] | None = None
        self._launcher = LauncherScreen(self.store, self.view, options.concurrency, countdown=clock)

    def on_mount(self) -> None:
        self.set_keymap(self.options.keymap)
        self.add_mode("launcher", lambda: self._launcher)
        self.add_mode("live", functools.partial(LiveScreen, self.store, self.view))
        self.add_mode("bench", functools.partial(BenchScreen, self.store, self.view, self._results_folder()))
        self.add_mode("log", functools.partial(LogScreen, self.store, self.view))
        if self._guard is not None:
            self._guard.start()
        if self.session is None:
            self.session = from_options(self.options)
        if self.session is None:
            self.open_launcher()
        else:
            self._open(self.session)
        if self._clock:
            self.set_timer(self.frames.period_s, self._next_frame)

    def _results_folder(self) -> Path:
        if self._results is not None:
            return self._results
        from tui.cli.results_folder import results_folder

        return results_folder()

    # --- sessions --------------------------------------------------------------------------------------------------

    def open_launcher(self) -> None:
        """End this session and choose another."""
        if self.session is not None:
            self.end_session()
            self.session = None
            self.store.reset()
            self.control.use(None, "nothing is open")
        if self._gpus is None and self._clock:
            threading.Thread(target=self._look_for_gpus, name="gpus", daemon=True).start()
        self.switch_mode("launcher")

    def _look_for_gpus(self) -> None:
        self._gpus = gpu_names()

    def on_launcher_screen_picked(self, event: LauncherScreen.Picked) -> None:
        """Open what was chosen."""
        try:
            session = from_choice(event.choice, event.path)
        except Exception as error:  # whatever a choice cannot be opened for, the operator stays here and reads why
            self.notify(str(error), severity="error", timeout=10)
            return
        self._open(session)

    def _open(self, session: Session) -> None:
        self.session = session
        session.open()
        self.switch_mode("live")

    def end_session(self) -> None:
        """End everything that the session started. May be called from any thread."""
        self.benchmarks.stop()
        if self.session is not None:
            self.session.close()

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
        self.set_timer(self.frames.period_s, self._next_frame)

    def frame(self) -> None:
        """One frame: what has come goes into the store, then the panels that differ are drawn."""
        session = self.session
        if session is not None:
            session.fill(self.store)
            self.view.status = session.failure or session.status
            self.control.use(session.channel, session.read_only)
            self.benchmarks.tick()
            self._show_fault(session)
        if self._gpus is not None:
            self._launcher.found(self._gpus)
        for screen in self.screen_stack:
            if isinstance(screen, ConsoleScreen):
                screen.tick()

    def _backlog(self) -> int:
        """Writes that the terminal has not taken yet. Textual keeps them in its driver's writer thread."""
        writer = getattr(self._driver, "_writer_thread", None)
        queue = getattr(writer, "_queue", None)
        return int(queue.qsize()) if queue is not None else 0

    def _show_fault(self, session: Session) -> None:
        fault = self.store.fault
        if fault is self._fault_shown:
            return
        self._fault_shown = fault
        if isinstance(self.screen, FaultDialog):
            self.screen.dismiss(False)
        if fault is not None:
            restartable = fault.restartable and session.restartable
            self.push_screen(FaultDialog(fault, restartable), self._fault_answered)

    def _fault_answered(self, restart: bool | None) -> None:
        if restart:
            self.restart_engine()

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
        """Switch to a screen."""
        if self.current_mode != mode:
            self.switch_mode(mode)

    def show_help(self) -> None:
        """The help of this screen and of the focused panel."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.view, self.screen))

    def show_commands(self) -> None:
        """The command palette."""
        self.action_command_palette()

    def start_benchmark(self) -> None:
        """Ask what to measure, then measure it."""
        address = self.session.address if self.session is not None else None
        if address is None:
            self.store.note("refused", "bench: no engine is connected")
        elif self.benchmarks.running:
            self.notify("A benchmark is running already: x on the benchmark screen cancels it")
        else:
            self.push_screen(BenchDialog(self.benchmarks.last), lambda request: self._measure(address, request))

    def _measure(self, address: str, request: BenchRequest | None) -> None:
        if request is not None:
            self.benchmarks.start(address, request)
            self.show("bench")

    def cancel_benchmark(self) -> None:
        """End the running benchmark without a result."""
        self.benchmarks.cancel()

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
