"""A SGLang or vLLM server that the console launched and ends."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sessions.channel.interface import Channel, ChannelError
from sessions.channel.unix import connect_unix, runtime_dir
from sessions.clock import source_id
from tui.console.session.live_link import LiveLink
from tui.console.store.store import Store

if TYPE_CHECKING:
    from probes.launch.launched import LaunchedServer

CONNECT_TIMEOUT_S = 10.0


class LaunchedSession:
    """Starts the server's command line in a thread; its loading, log and end show like those of an engine of ours."""

    restartable = True

    def __init__(self, words: Sequence[str]) -> None:
        self.title = " ".join(words)
        self.status = ""
        self.failure: str | None = None
        self.read_only = "not started yet"
        self.address: str | None = None
        self._words = tuple(words)
        self._server: LaunchedServer | None = None
        self._link: LiveLink | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def channel(self) -> Channel | None:
        """Where commands go, once connected."""
        link = self._link
        return link.channel if link is not None else None

    def open(self) -> None:
        """Begin launching."""
        self.status = "launching"
        threading.Thread(target=self._launch, name="launch", daemon=True).start()

    def fill(self, store: Store) -> None:
        """Take what has come."""
        link = self._link
        if link is not None:
            link.fill(store)

    def restart(self) -> None:
        """End what is left of the server and launch it anew."""
        self.status = "launching again"
        threading.Thread(target=self._relaunch, name="relaunch", daemon=True).start()

    def close(self) -> None:
        """End the server; it is given 20 s to end by itself."""
        with self._lock:
            self._closed = True
        self._end()

    def _relaunch(self) -> None:
        self._end()
        self._launch()

    def _launch(self) -> None:
        from probes.launch.command_line import CommandLine, LaunchError
        from probes.launch.launched import LaunchedServer

        path = runtime_dir() / f"launched-{os.getpid()}-{secrets.token_hex(4)}.sock"
        try:
            server = LaunchedServer(CommandLine(self._words), path, source_id("server"))
            channel = connect_unix(path, source_id("console"), "console", CONNECT_TIMEOUT_S)
        except (LaunchError, ChannelError) as error:
            self.failure = self.read_only = str(error)
            self.status = ""
            return
        with self._lock:
            self._server, self.address = server, str(path)
            self._link = LiveLink(channel, True)
            closed = self._closed
        self.status = ""
        if closed:
            self._end()

    def _end(self) -> None:
        with self._lock:
            link, self._link = self._link, None
            server, self._server = self._server, None
            self.address = None
        if link is not None:
            link.close("the console ended")
        if server is not None:
            server.close()
