"""Messages as bytes: MessagePack, the same for live, recorded, replayed and remote sessions."""

from __future__ import annotations

from typing import cast

import msgspec

from sessions.messages import KINDS, SCHEMA_VERSION, AnyMessage, Message

MAX_MESSAGE_BYTES = 8 * 1024 * 1024


class MalformedMessage(ValueError):
    """Bytes that are no message; the text is one line that says what is wrong with them."""


class UnknownKind(msgspec.Struct, frozen=True):
    """Stands for a well-formed message of a kind that a later version added: readers count and skip it."""

    kind: str


class _Tag(msgspec.Struct, frozen=True):
    kind: str


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)
_tag_decoder = msgspec.msgpack.Decoder(_Tag)


def encode(message: Message) -> bytes:
    """Return the message as MessagePack."""
    return _encoder.encode(message)


def decode(data: bytes | memoryview, limit: int = MAX_MESSAGE_BYTES) -> Message | UnknownKind:
    """Return the message that `data` holds, skipping fields that this version does not know.

    Raise MalformedMessage when `data` is longer than `limit` bytes, is not MessagePack, nests too deeply or does not
    fit the kind that it claims to be.
    """
    if len(data) > limit:
        raise MalformedMessage(f"message of {len(data)} bytes is longer than the {limit} allowed")
    try:
        return cast(Message, _decoder.decode(data))
    except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError) as error:
        kind = _kind_in(data)
        if kind is not None and kind not in KINDS:
            return UnknownKind(kind)
        raise MalformedMessage(f"malformed {kind or 'message'}: {_one_line(error)}") from None


def schema_refusal(schema: int, who: str) -> str | None:
    """Why this version cannot read what `who` writes with `schema`; None when it can."""
    if schema <= SCHEMA_VERSION:
        return None
    return f"{who} uses message schema {schema}, newer than {SCHEMA_VERSION} known here: update herdscope on this side"


def _kind_in(data: bytes | memoryview) -> str | None:
    try:
        return _tag_decoder.decode(data).kind
    except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError):
        return None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
