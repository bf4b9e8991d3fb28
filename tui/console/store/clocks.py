"""Brings the monotonic clocks of several hosts onto one: the session's."""

from __future__ import annotations

from sessions.messages import Hello, SessionHeader


class Clocks:
    """Offsets that take each source's monotonic time to the session's, which is that of the first host heard of.

    Sources of one host and boot share a clock. Hosts are tied by the wall-clock anchor in their Hello or SessionHeader,
    so they agree as well as their UTC does.
    """

    def __init__(self) -> None:
        self._wall_minus_mono: dict[str, int] = {}
        self._reference: str | None = None

    def anchor(self, message: Hello | SessionHeader) -> None:
        """Learn a host's anchor."""
        self._wall_minus_mono[_host_of(message.source)] = message.wall_ns - message.t_ns

    def offset_ns(self, source: str) -> int:
        """What to add to a time of `source`; 0 for the reference host, and for hosts without an anchor."""
        host = _host_of(source)
        if self._reference is None:
            self._reference = host
        if host == self._reference:
            return 0
        own, reference = self._wall_minus_mono.get(host), self._wall_minus_mono.get(self._reference)
        return own - reference if own is not None and reference is not None else 0

    def is_of(self, host: str) -> bool:
        """Whether the session's clock is that of the host of this name."""
        return self._reference is not None and self._reference.rpartition("-")[0] == host

    def from_wall(self, wall_ns: int) -> int | None:
        """The instant of the session's clock at a UTC time (ns since 1970)."""
        anchor = self._wall_minus_mono.get(self._reference or "")
        return wall_ns - anchor if anchor is not None else None

    def wall_ns(self, session_ns: int) -> int | None:
        """UTC (ns since 1970) of an instant of the session's clock."""
        anchor = self._wall_minus_mono.get(self._reference or "")
        return session_ns + anchor if anchor is not None else None


def _host_of(source: str) -> str:
    return source.split("/", 1)[0]
