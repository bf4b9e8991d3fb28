"""Benchmarks that the operator starts: the background load is paused meanwhile and goes on afterwards."""

from __future__ import annotations

import threading
import time
from typing import Any

from textual.app import App

from sessions.messages import BenchDone
from sessions.results import BenchResult
from tui.console.control import Control
from tui.console.session.bench_runner import BenchRequest, BenchRunner
from tui.console.store.store import Store
from tui.console.view import View


class Benchmarks:
    """Starts, follows and cancels; progress itself comes over the channel into the store."""

    def __init__(self, store: Store, view: View, control: Control) -> None:
        self.last = BenchRequest()
        self._store = store
        self._view = view
        self._control = control
        self._runner = BenchRunner()
        self._paused: int | None = None

    @property
    def running(self) -> bool:
        """Whether one is under way."""
        return self._runner.running

    def ask(self, app: App[Any], address: str | None) -> None:
        """Ask what to measure, then measure it and show how it goes; `address` is that of the session's engine."""
        if address is None:
            self._store.note("refused", "bench: no engine is connected")
        elif self.running:
            app.notify("A benchmark is running already: x on the benchmark screen cancels it")
        else:
            from tui.console.screens.bench_dialog import BenchDialog

            def answered(request: BenchRequest | None) -> None:
                if request is not None:
                    self.start(address, request)
                    app.switch_mode("bench")

            app.push_screen(BenchDialog(self.last), answered)

    def start(self, address: str, request: BenchRequest) -> None:
        """Pause the load and begin."""
        self.last = request
        load = self._store.load
        self._paused = load.concurrency if load is not None and load.concurrency else None
        if self._paused:
            self._control.set_load(0)
        self._view.bench = "starting"
        self._runner.start(address, request)

    def tick(self) -> None:
        """Notice the end."""
        outcome = self._runner.poll()
        if self._store.bench.running is not None or outcome is not None:
            self._view.bench = ""
        if outcome is None:
            return
        if isinstance(outcome, BenchResult):
            if outcome.run not in self._store.bench.results:
                source = self._store.session.source if self._store.session else "console"
                self._store.apply([BenchDone(source=source, t_ns=time.monotonic_ns(), run=outcome.run, result=outcome)])
        else:
            self._store.note("fault", f"bench: {outcome}")
            self._store.bench.forget_running(f"failed: {outcome}")
        self._resume_load()

    def cancel(self) -> None:
        """End the one under way, and let the load go on."""
        if not self._runner.running:
            return
        threading.Thread(target=self._runner.stop, name="bench-stop", daemon=True).start()
        self._view.bench = ""
        self._store.bench.forget_running("cancelled")
        self._store.note("bench", "bench cancelled")
        self._resume_load()

    def stop(self) -> None:
        """The session ends."""
        self._runner.stop()

    def _resume_load(self) -> None:
        if self._paused:
            self._control.set_load(self._paused)
            self._paused = None
