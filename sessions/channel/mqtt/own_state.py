"""What this peer keeps at the broker, retained: put there at each connection, refreshed, cleared at the end.

They expire by themselves a minute after the last refresh, so that a dead peer's state does not pose as live for ever.
"""

from __future__ import annotations

from sessions.channel.mqtt.outgoing import Publication

EXPIRY_S = 60
REFRESH_NS = 20_000_000_000


class OwnState:
    """The last publication of each retained topic of ours."""

    def __init__(self) -> None:
        self._by_topic: dict[str, Publication] = {}
        self._outliving: set[str] = set()
        self._refreshed_ns = 0

    def keep(self, topic: str, payload: bytes, outlives: bool = False) -> Publication:
        """Make and remember the publication; `outlives`: leave it to its expiry when we go, for others to read."""
        publication = Publication(topic, payload, qos=1, retain=True, expiry_s=EXPIRY_S)
        self._by_topic[topic] = publication
        if outlives:
            self._outliving.add(topic)
        return publication

    def forget(self, topic: str) -> Publication | None:
        """Stop keeping a topic; the publication that clears it, None when it was not kept."""
        return _clearing(topic) if self._by_topic.pop(topic, None) else None

    def everything(self, now_ns: int) -> list[Publication]:
        """All of it, to publish now."""
        self._refreshed_ns = now_ns
        return list(self._by_topic.values())

    def due(self, now_ns: int) -> list[Publication]:
        """All of it when it is time to refresh it."""
        return self.everything(now_ns) if now_ns - self._refreshed_ns >= REFRESH_NS else []

    def farewell(self) -> list[Publication]:
        """What clears everything that is not to outlive us."""
        return [_clearing(topic) for topic in self._by_topic if topic not in self._outliving]


def _clearing(topic: str) -> Publication:
    return Publication(topic, b"", qos=1, retain=True)
