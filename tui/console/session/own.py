"""An engine of our own: started here, loaded here, ended here."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from engine.config import ConfigError, EngineConfig
from sessions.channel.interface import Channel, ChannelError
from sessions.channel.unix import connect_unix
from sessions.clock import source_id
from tui.console.session.children import Child
from tui.console.session.live_link import LiveLink
from tui.console.store.store import Store

if TYPE_CHECKING:
    from engine.launch import EngineProcess

CONNECT_TIMEOUT_S = 30.0


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
        link = self._link
        if link is not None:
            link.fill(store)
        load = self._load
        if load is not None and load.exit_code is not None:
            self._load = None
            if not self._closing.is_set() and store.fault is None:
                store.note("alert", f"the background load ended: {load.last_error() or f'exit code {load.exit_code}'}")

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

    def _begin(self, work: object) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        self.failure = None
        self._thread = threading.Thread(target=self._guarded, args=(work,), name="own-engine", daemon=True)
        self._thread.start()

    def _guarded(self, work: object) -> None:
        assert callable(work)
        try:
            work()
        except (ChannelError, ConfigError, OSError, RuntimeError) as error:
            if not self._closing.is_set():
                self.failure = self.read_only = str(error)
                self._end()
        self.status = ""

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
        channel = connect_unix(engine.socket, source_id("console"), "console", CONNECT_TIMEOUT_S)
        with self._lock:
            self._link = LiveLink(channel, sample=True)
        if self._concurrency > 0 and not self._closing.is_set():
            load = Child(["load", "--connect", self.address, "--concurrency", str(self._concurrency)])
            with self._lock:
                self._load = load

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
