"""An engine or server that somebody else started: reached by its socket, through a broker, or over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable

from probes.attach.connect import Attached, attach
from probes.attach.errors import ServerError
from sessions.channel.interface import Channel, ChannelError
from sessions.channel.mqtt.address import BrokerAddress, parse_broker
from sessions.clock import source_id
from tui.console.session.live_link import LiveLink
from tui.console.store.store import Store


class AttachedSession:
    """Connects in a thread. Ending the console leaves the engine alone.

    `broker` reads a broker's URL, with the credentials that go with it.
    """

    restartable = False

    def __init__(self, address: str, broker: Callable[[str], BrokerAddress] = parse_broker) -> None:
        self.address: str | None = address
        self.title = f"attached to {address}"
        self._target = address
        self._broker = broker
        self._attached: Attached | None = None
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
        self.status = f"connecting to {self._target}"
        threading.Thread(target=self._connect, name="attach", daemon=True).start()

    def _connect(self) -> None:
        try:
            attached = attach(self._target, source_id("console"), "console", self._broker)
        except (ChannelError, ServerError) as error:
            self.failure = self.read_only = str(error)
            self.status = ""
            return
        with self._lock:
            if self._closed:
                attached.close("the console ended")
            else:
                self.title, self.address = attached.title, attached.socket
                self._attached = attached
                # The GPUs of this machine are of interest only where the engine may run on them.
                local = attached.socket is not None
                self._link = LiveLink(attached.channel, sample_gpus=local, publishes=local)
        self.status = ""

    def fill(self, store: Store) -> None:
        """Take what has come."""
        if self._link is not None:
            self._link.fill(store)

    def restart(self) -> None:
        """Not ours to restart."""

    def close(self) -> None:
        """Leave the channel, and end what was started to reach it."""
        with self._lock:
            self._closed = True
            link, self._link = self._link, None
            attached, self._attached = self._attached, None
        if link is not None:
            link.close("the console ended")
        if attached is not None:
            attached.close("the console ended")
