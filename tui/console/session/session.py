"""What the console looks at: something that fills the store, and perhaps takes commands."""

from __future__ import annotations

from typing import Protocol

from sessions.channel.interface import Channel
from tui.console.store.store import Store


class Session(Protocol):
    """An engine of our own, one that runs elsewhere, or a recording. A widget cannot tell which."""

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        ...

    @property
    def status(self) -> str:
        """What it is doing while it is being opened; empty when there is nothing to say."""
        ...

    @property
    def failure(self) -> str | None:
        """Why it could not be opened, in one line."""
        ...

    @property
    def channel(self) -> Channel | None:
        """Where commands go, once connected."""
        ...

    @property
    def read_only(self) -> str:
        """Why commands cannot be sent while `channel` is None."""
        ...

    @property
    def address(self) -> str | None:
        """What another process connects to, once open."""
        ...

    @property
    def restartable(self) -> bool:
        """Whether `restart` can do anything."""
        ...

    def open(self) -> None:
        """Begin opening; returns at once."""
        ...

    def fill(self, store: Store) -> None:
        """Put into the store what has come since the last call, and move its present on. Never waits."""
        ...

    def restart(self) -> None:
        """End the engine and start it again; returns at once."""
        ...

    def close(self) -> None:
        """End everything that was started; waits at most a few seconds. May be called again, and from any thread."""
        ...
