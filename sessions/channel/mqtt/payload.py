"""Payloads: a MessagePack array, so that one packet can carry several messages."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sessions.channel.mqtt.outgoing import Publication
from sessions.codec import MAX_MESSAGE_BYTES, MalformedMessage

_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])


def joined(batch: Sequence[Publication]) -> Publication:
    """One publication for a batch of the same topic (at most 65,535). An empty payload stays empty: it clears a
    retained message."""
    if not batch[0].payload:
        return batch[0]
    return msgspec.structs.replace(batch[0], payload=pack([publication.payload for publication in batch]))


def pack(items: Sequence[bytes]) -> bytes:
    """A MessagePack array of items that are MessagePack already."""
    count = len(items)
    header = bytes([0x90 | count]) if count < 16 else b"\xdc" + count.to_bytes(2, "big")
    return header + b"".join(items)


def unpack(payload: bytes) -> list[memoryview]:
    """The items of a payload, still encoded. Raise MalformedMessage."""
    if len(payload) > MAX_MESSAGE_BYTES:
        raise MalformedMessage(f"payload of {len(payload)} bytes is longer than the {MAX_MESSAGE_BYTES} allowed")
    try:
        return [memoryview(part) for part in _decoder.decode(payload)]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MalformedMessage(f"malformed payload: {' '.join(str(error).split())[:200]}") from None
