"""MCAP: every message as JSON with its schema, one topic a kind; opens in Foxglove and with the mcap library."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sessions.export.errors import ExportError, missing_library
from sessions.messages import Message, kind_of
from sessions.recording.reader import Recording


def write_mcap(recording: Recording, path: Path, start_ns: int | None = None, end_ns: int | None = None) -> int:
    """Write an interval (arrivals; default: all); return the number of messages. Raise ExportError.

    log_time is UTC at arrival, publish_time UTC at the message's own time on the recorder's clock.
    """
    try:
        from mcap.writer import Writer
    except ImportError:
        raise missing_library("mcap") from None
    count = 0
    channels: dict[type[Message], int] = {}
    try:
        with path.open("wb") as file:
            writer = Writer(file)
            writer.start(profile="", library="herdscope")
            for at_ns, message in recording.records(start_ns, end_ns):
                channel = channels.get(type(message))
                if channel is None:
                    channel = channels[type(message)] = _register(writer, type(message))
                writer.add_message(
                    channel,
                    log_time=recording.utc_ns(at_ns),
                    data=msgspec.json.encode(message),
                    publish_time=max(0, recording.utc_ns(message.t_ns)),
                    sequence=count,
                )
                count += 1
            writer.add_metadata("herdscope", _about(recording))
            writer.finish()  # type: ignore[no-untyped-call]
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error.strerror}") from None
    return count


def _register(writer: object, kind: type[Message]) -> int:
    from mcap.writer import Writer

    assert isinstance(writer, Writer)
    name = kind_of(kind)
    schema = msgspec.json.schema(kind)
    # MCAP readers want the object itself at the top, with what it refers to beside it.
    top = {**schema["$defs"][kind.__name__], "$defs": schema["$defs"]}
    schema_id = writer.register_schema(name=name, encoding="jsonschema", data=msgspec.json.encode(top))
    channel: int = writer.register_channel(topic=f"/{name}", message_encoding="json", schema_id=schema_id)
    return channel


def _about(recording: Recording) -> dict[str, str]:
    origin = recording.origin
    return {"host": origin.host, "command_line": " ".join(origin.command_line), **origin.versions}
