"""Frames on a stream socket: a header of length, type and subscription id, then the payload."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import msgspec

from sessions.codec import MAX_MESSAGE_BYTES, MalformedMessage

_HEADER = struct.Struct(">IBI")


class FrameType(IntEnum):
    """What a frame holds. `sub` is the receiver's subscription where one is meant, else 0."""

    MESSAGE = 1  # a published message
    RETAINED = 2  # a retained message, for the new subscription `sub` only
    COMMAND = 3  # a command; to its server with the serving subscription in `sub`
    REPLY = 4  # the answer to a command
    SUBSCRIBE = 5  # Interest of subscription `sub`
    UNSUBSCRIBE = 6  # subscription `sub` ends
    SERVE = 7  # kinds of command that subscription `sub` answers
    WANTED = 8  # kinds that somebody subscribes to now
    DROPPED = 9  # how many frames were dropped here, at this point of the stream
    REFUSED = 10  # subscription `sub` was refused, with the reason
    BYE = 11  # the sender leaves, with the reason
    CONFIRMED = 12  # subscription `sub` is in force and has had its retained messages


class Interest(msgspec.Struct, frozen=True, array_like=True):
    """Kinds (and sources; none means all) that one subscription asks for."""

    kinds: list[str]
    sources: list[str] = []


class Frame(NamedTuple):
    """One frame as read."""

    type: FrameType
    sub: int
    payload: bytes


_FRAME_TYPES = {int(kind): kind for kind in FrameType}
_encoder = msgspec.msgpack.Encoder()
_interests = msgspec.msgpack.Decoder(Interest)
_texts = msgspec.msgpack.Decoder(str)
_counts = msgspec.msgpack.Decoder(int)


def pack(kind: FrameType, payload: bytes, sub: int = 0) -> bytes:
    """A frame's bytes."""
    return _HEADER.pack(len(payload), kind, sub) + payload


def pack_control(kind: FrameType, body: Interest | str | int, sub: int = 0) -> bytes:
    """The bytes of a frame that carries no message."""
    return pack(kind, _encoder.encode(body), sub)


def interest_in(payload: bytes) -> Interest:
    """Read a SUBSCRIBE, SERVE or WANTED payload; raise MalformedMessage."""
    try:
        return _interests.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"malformed subscription: {error}") from None


def text_in(payload: bytes) -> str:
    """Read a BYE or REFUSED payload; raise MalformedMessage."""
    try:
        return _texts.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"malformed reason: {error}") from None


def count_in(payload: bytes) -> int:
    """Read a DROPPED payload; raise MalformedMessage."""
    try:
        return _counts.decode(payload)
    except msgspec.MsgspecError as error:
        raise MalformedMessage(f"malformed count: {error}") from None


class FrameSplitter:
    """Cuts a byte stream into frames; holds at most one unfinished frame of `limit` bytes."""

    def __init__(self, limit: int = MAX_MESSAGE_BYTES) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames completed by `data`; raise MalformedMessage at the first bad header."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _HEADER.size:
                length, number, sub = _HEADER.unpack_from(buffer, start)
                kind = _FRAME_TYPES.get(number)
                if kind is None:
                    raise MalformedMessage(f"unknown frame type {number}: the peer does not speak this protocol")
                if length > self.limit:
                    raise MalformedMessage(f"frame of {length} bytes is longer than the {self.limit} allowed")
                body = start + _HEADER.size
                if len(buffer) - body < length:
                    break
                start = body + length
                yield Frame(kind, sub, bytes(memoryview(buffer)[body:start]))
        finally:
            del buffer[:start]
