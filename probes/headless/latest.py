"""The last frame of each GPU and of the host, for whoever asks now and then."""

from __future__ import annotations

from sessions.messages import GpuFrame, HostFrame, Message

STALE_NS = 5_000_000_000


class LatestFrames:
    """Keeps the newest GpuFrame of each GPU and the newest HostFrame; frames older than 5 s are not given out."""

    def __init__(self) -> None:
        self._gpus: dict[int, GpuFrame] = {}
        self._host: HostFrame | None = None

    def take(self, message: Message) -> None:
        """Remember this message if it is a frame of the kinds kept."""
        if isinstance(message, GpuFrame):
            self._gpus[message.index] = message
        elif isinstance(message, HostFrame):
            self._host = message

    def gpus(self, now_ns: int) -> list[GpuFrame]:
        """Fresh GPU frames by index."""
        return [frame for _, frame in sorted(self._gpus.items()) if now_ns - frame.t_ns < STALE_NS]

    def host(self, now_ns: int) -> HostFrame | None:
        """The host's fresh frame."""
        return self._host if self._host is not None and now_ns - self._host.t_ns < STALE_NS else None
