"""How far the monotonic clocks of other hosts are from ours.

A hello or session header gives a first estimate through UTC, as good as the hosts' time synchronisation. Pings give
better ones: with t0 and t3 our send and receive instants and t1 the other's, the offset is t1 - (t0 + t3) / 2, off by
at most (t3 - t0) / 2 (Cristian's algorithm). The estimate with the smallest bound is kept.
"""

from __future__ import annotations

import msgspec

from sessions.messages import Hello, Message, SessionHeader

UTC_ERROR_NS = 50_000_000
"""Assumed bound for an estimate through UTC: hosts without time synchronisation can be further apart."""
STALE_NS = 600_000_000_000
"""Clocks drift, by tens of microseconds a second at worst: after this a new estimate is taken whatever its bound."""


class ClockOffset(msgspec.Struct, frozen=True):
    """The other host's monotonic clock minus ours, its bound, and when it was measured (our clock)."""

    offset_ns: int
    error_ns: int
    measured_ns: int


def host_of(source: str) -> str:
    """The part of a source id that names the host and boot, within which all monotonic clocks are one."""
    return source.partition("/")[0]


class ClockBook:
    """The offset of each host seen."""

    def __init__(self, own_source: str) -> None:
        self._own_host = host_of(own_source)
        self._offsets: dict[str, ClockOffset] = {}

    def offsets(self) -> dict[str, ClockOffset]:
        """Every other host's offset now."""
        return dict(self._offsets)

    def is_ours(self, source: str) -> bool:
        """Whether that source shares our clock."""
        return host_of(source) == self._own_host

    def offset_of(self, source: str) -> ClockOffset | None:
        """The offset of that source's host; zero for our own, None when nothing is known yet."""
        if self.is_ours(source):
            return ClockOffset(0, 0, 0)
        return self._offsets.get(host_of(source))

    def learn_anchor(self, message: Hello | SessionHeader, now_ns: int, wall_ns: int) -> None:
        """Estimate through UTC: `now_ns` and `wall_ns` are our clocks at one instant."""
        offset = (message.t_ns - message.wall_ns) - (now_ns - wall_ns)
        self._keep(message.source, ClockOffset(offset, UTC_ERROR_NS, now_ns))

    def learn_ping(self, source: str, sent_ns: int, remote_ns: int, received_ns: int) -> None:
        """Estimate from one round trip."""
        half = (received_ns - sent_ns) // 2
        if half >= 0:
            self._keep(source, ClockOffset(remote_ns - (sent_ns + half), half, received_ns))

    def to_ours(self, message: Message) -> Message:
        """The message with its time on our clock; as it is when the offset is not known."""
        if self.is_ours(message.source):
            return message
        offset = self._offsets.get(host_of(message.source))
        if offset is None:
            return message
        return msgspec.structs.replace(message, t_ns=message.t_ns - offset.offset_ns)

    def _keep(self, source: str, new: ClockOffset) -> None:
        if self.is_ours(source):
            return
        old = self._offsets.get(host_of(source))
        if old is None or new.error_ns <= old.error_ns or new.measured_ns - old.measured_ns > STALE_NS:
            self._offsets[host_of(source)] = new
