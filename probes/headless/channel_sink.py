"""Messages onto a channel: a broker's, or an engine's socket."""

from __future__ import annotations

from sessions.channel.interface import Channel
from sessions.messages import Message


class ChannelSink:
    """Publishes each message. The channel itself never waits and mends its own losses of the broker."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def write(self, message: Message) -> None:
        self._channel.publish(message)

    def close(self) -> None:
        self._channel.close("the probe ended")
