"""An engine of our own: started here, loaded here, ended here."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from engine.config import EngineConfig
from sessions.channel.interface import Channel, ChannelError
from sessions.channel.unix import UnixPeer, connect_unix
from sessions.clock import source_id
from sessions.messages import Fault
from tui.console.session.children import Child
from tui.console.session.live_link import LiveLink
from tui.console.store.store import Store

if TYPE_CHECKING:
    from engine.launch import EngineProcess

CONNECT_TIMEOUT_S = 30.0
TRY_S = 0.5


class OwnSession:
    """Opens in a thread: writes the tiny MoE when it is wanted and missing, starts the engine, connects, starts the
    background load. The engine loads its model while the screens are shown already."""

    restartable = True

    def __init__(self, config: EngineConfig, concurrency: int, prepare_model: bool) -> None:
        self.title = config.model
        self.status = ""
        self.failure: str | None = None
        self.read_only = "the engine is not up yet"
        self.address: str | None = None
        self._config = config
        self._concurrency = concurrency
        self._prepare_model = prepare_model
        self._engine: EngineProcess | None = None
        self._link: LiveLink | None = None
        self._load: Child | None = None
        self._fault: Fault | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def channel(self) -> Channel | None:
        """Where commands go, once connected."""
        link = self._link
        return link.channel if link is not None else None

    def open(self) -> None:
        """Begin starting the engine."""
        self.status = "starting"
        self._begin(self._start)

    def fill(self, store: Store) -> None:
        """Take what has come; notice a load that ended by itself."""
        link, engine = self._link, self._engine
        if link is not None:
            link.fill(store)
            self._remember(store)
        if self._fault is not None:
            store.apply([self._fault])
            self._fault = None
        elif engine is not None and engine.exit_code is not None and store.fault is None and not self._busy():
            store.apply([self._ended(engine)])
        load = self._load
        if load is not None and load.exit_code is not None:
            self._load = None
            if not self._closing.is_set() and store.fault is None:
                store.note("alert", f"the background load ended: {load.last_error() or f'exit code {load.exit_code}'}")

    def _remember(self, store: Store) -> None:
        """An engine that is restarted goes on with the knobs and the load of now."""
        if store.knobs is not None and store.knobs.knobs != self._config.knobs:
            self._config = msgspec.structs.replace(self._config, knobs=store.knobs.knobs)
        if store.load is not None and store.load.concurrency:
            self._concurrency = store.load.concurrency

    def restart(self) -> None:
        """End what is left of the engine and start it anew."""
        self.status = "restarting"
        self._begin(self._restart)

    def close(self) -> None:
        """End load, channel and engine, in this order."""
        self._closing.set()
        self._end()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CONNECT_TIMEOUT_S)
        self._end()

    def _begin(self, work: Callable[[], None]) -> None:
        if self._busy():
            return
        self.failure = None
        self._thread = threading.Thread(target=self._guarded, args=(work,), name="own-engine", daemon=True)
        self._thread.start()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # whatever it is, the operator reads it and may try again
            if not self._closing.is_set():
                self.read_only, *log = str(error).splitlines() or [type(error).__name__]
                engine = self._engine
                lines = engine.last_lines() if engine is not None else log
                self._fault = _fault("the engine did not start", self.read_only, lines)
                self._end()
        self.status = ""

    def _busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _restart(self) -> None:
        self._end()
        self._start()

    def _start(self) -> None:
        from engine.launch import EngineProcess

        if self._prepare_model:
            from tui.cli.engine_defaults import write_tiny_once

            self.status = "writing the tiny MoE"
            write_tiny_once()
        self.status = "starting the engine"
        if self._closing.is_set():
            return
        engine = EngineProcess.start(self._config)
        with self._lock:
            self._engine = engine
        self.address = str(engine.socket)
        gpus = self._config.device != "cpu" and self._config.emulate is None
        link = LiveLink(self._connect(engine), gpus)
        with self._lock:
            self._link = link
        if self._concurrency > 0 and not self._closing.is_set():
            load = Child(["load", "--connect", self.address, "--concurrency", str(self._concurrency)])
            with self._lock:
                self._load = load

    def _connect(self, engine: EngineProcess) -> UnixPeer:
        """Join its channel as soon as it answers. Raise ChannelError when it ends before, or takes too long."""
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        while True:
            try:
                return connect_unix(engine.socket, source_id("console"), "console", TRY_S)
            except ChannelError:
                if engine.exit_code is not None:
                    raise ChannelError(f"it ended with exit code {engine.exit_code}") from None
                if self._closing.is_set() or time.monotonic() >= deadline:
                    raise

    def _ended(self, engine: EngineProcess) -> Fault:
        code = engine.exit_code or 0
        signal_name = signal.Signals(-code).name if code < 0 else None
        cause = f"killed by {signal_name}" if signal_name else f"exit code {code}"
        return _fault("the engine's driver ended", cause, engine.last_lines(), code if code >= 0 else None, signal_name)

    def _end(self) -> None:
        """End everything that runs now."""
        with self._lock:
            load, self._load = self._load, None
            link, self._link = self._link, None
            engine, self._engine = self._engine, None
            self.address = None
        if load is not None:
            load.stop()
        if link is not None:
            link.close("the console ended")
        if engine is not None:
            engine.stop()


def _fault(
    what: str, cause: str, log: list[str], exit_code: int | None = None, signal_name: str | None = None
) -> Fault:
    return Fault(
        source=source_id("console"),
        t_ns=time.monotonic_ns(),
        what=what,
        cause=cause,
        exit_code=exit_code,
        signal=signal_name,
        last_log=log,
    )
