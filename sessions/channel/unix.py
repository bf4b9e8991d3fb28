"""The Unix-socket carrier: the engine's driver hosts a UnixHub, everybody else joins with connect_unix."""

from __future__ import annotations

from sessions.channel.hub import UnixHub
from sessions.channel.paths import runtime_dir
from sessions.channel.peer import UnixPeer, connect_unix

__all__ = ["UnixHub", "UnixPeer", "connect_unix", "runtime_dir"]
