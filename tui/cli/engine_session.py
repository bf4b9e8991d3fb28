"""An engine for the length of a command: one that runs already, or one started for it and ended with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessions.channel.interface import Channel
    from sessions.messages import Role

CONNECT_S = 10.0


@contextmanager
def connect_engine(address: str, role: Role, wait_s: float = CONNECT_S) -> Iterator[Channel]:
    """Join the channel of the engine behind a socket. Raise ChannelError when nothing answers there."""
    from sessions.channel.unix import connect_unix
    from sessions.clock import source_id

    channel = connect_unix(address, source_id(role), role, wait_s)
    try:
        yield channel
    finally:
        channel.close("the command ended")
