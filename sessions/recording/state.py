"""What a viewer must know at an instant whatever came before: the last value of everything that has one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import zstandard

from sessions.codec import MAX_MESSAGE_BYTES, UnknownKind, decode, encode
from sessions.messages import (
    BenchDone,
    BenchPhase,
    EngineState,
    Fault,
    Goodbye,
    GpuFrame,
    Hello,
    HostFrame,
    KnobState,
    LoadState,
    Message,
    QueueFrame,
    SessionHeader,
    Verdicts,
)
from sessions.recording.zstd import PerThread

Key = tuple[type[Message], str, Any]

_KEYS: dict[type[Message], Callable[[Any], Any]] = {
    SessionHeader: lambda message: None,
    Hello: lambda message: None,
    EngineState: lambda message: None,
    KnobState: lambda message: None,
    LoadState: lambda message: None,
    Fault: lambda message: None,
    QueueFrame: lambda message: None,
    HostFrame: lambda message: None,
    GpuFrame: lambda message: message.index,
    BenchPhase: lambda message: message.run,
    BenchDone: lambda message: message.run,
    Verdicts: lambda message: None,
}
_OUTLIVE_THEIR_SOURCE = (EngineState, Fault, BenchDone, Verdicts)
MAX_ENTRIES = 1024

_zstd = PerThread(level=9, checksum=True)


class SessionState:
    """The last message of each kind, source and (where there are several) GPU or run."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._last: dict[Key, Message] = {}
        for message in messages:
            self.update(message)

    def update(self, message: Message) -> None:
        """Take the next message of the stream."""
        kind = type(message)
        key = _KEYS.get(kind)
        if key is not None:
            place = (kind, message.source, key(message))
            self._last.pop(place, None)
            self._last[place] = message
            if len(self._last) > MAX_ENTRIES:
                del self._last[next(iter(self._last))]
        if isinstance(message, EngineState) and message.phase == "ready":
            self._last.pop((Fault, message.source, None), None)
        elif isinstance(message, Goodbye):
            self._forget(message.peer)

    def messages(self) -> list[Message]:
        """All of it, longest unchanged first."""
        return list(self._last.values())

    def _forget(self, source: str) -> None:
        for place in [key for key in self._last if key[1] == source and not issubclass(key[0], _OUTLIVE_THEIR_SOURCE)]:
            del self._last[place]


def pack_keyframe(messages: Sequence[Message]) -> bytes:
    """A keyframe's bytes."""
    return _zstd.compress(msgspec.msgpack.encode([encode(message) for message in messages]))


def unpack_keyframe(data: bytes) -> list[Message]:
    """Undo pack_keyframe, leaving out kinds unknown here; raise ValueError when it is damaged."""
    try:
        raw = _zstd.decompress(data, 4 * MAX_MESSAGE_BYTES)
        decoded = [decode(item) for item in msgspec.msgpack.decode(raw, type=list[bytes])]
    except (zstandard.ZstdError, msgspec.MsgspecError) as error:
        raise ValueError(str(error)) from None
    return [message for message in decoded if not isinstance(message, UnknownKind)]
