"""An engine that somebody else started, reached by its socket."""

from __future__ import annotations

import threading

from sessions.channel.interface import Channel, ChannelError
from sessions.channel.unix import connect_unix
from sessions.clock import source_id
from tui.console.session.live_link import LiveLink
from tui.console.store.store import Store

CONNECT_TIMEOUT_S = 5.0


class AttachedSession:
    """Connects in a thread. Ending the console leaves the engine alone."""

    restartable = False

    def __init__(self, address: str) -> None:
        self.address: str | None = address
        self.title = f"attached to {address}"
        self.status = ""
        self.failure: str | None = None
        self.read_only = "not connected"
        self._link: LiveLink | None = None
        self._closed = False
        self._lock = threading.Lock()

    @property
    def channel(self) -> Channel | None:
        """Where commands go, once connected."""
        return self._link.channel if self._link is not None else None

    def open(self) -> None:
        """Begin connecting."""
        self.status = f"connecting to {self.address}"
        threading.Thread(target=self._connect, name="attach", daemon=True).start()

    def _connect(self) -> None:
        try:
            channel = connect_unix(str(self.address), source_id("console"), "console", CONNECT_TIMEOUT_S)
        except ChannelError as error:
            self.failure = self.read_only = str(error)
        else:
            with self._lock:
                if self._closed:
                    channel.close("the console ended")
                else:
                    self._link = LiveLink(channel, sample_gpus=True)
        self.status = ""

    def fill(self, store: Store) -> None:
        """Take what has come."""
        if self._link is not None:
            self._link.fill(store)

    def restart(self) -> None:
        """Not ours to restart."""

    def close(self) -> None:
        """Leave the channel."""
        with self._lock:
            self._closed = True
            link, self._link = self._link, None
        if link is not None:
            link.close("the console ended")
