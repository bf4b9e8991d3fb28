"""What clients send, as far as this engine understands it. Fields it does not know are skipped, as others do."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from engine.server.api_error import ApiError

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_PROMPTS = 256
DEFAULT_COMPLETION_TOKENS = 16

T = TypeVar("T")


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = False


class SamplingFields(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that completions and chats share."""

    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool | None = None
    priority: int | None = None

    @property
    def stop_strings(self) -> list[str]:
        """Stop strings as a list."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or [])

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionBody(SamplingFields, frozen=True, kw_only=True):
    """POST /v1/completions."""

    prompt: str | list[str | int | list[int]]
    echo: bool | None = None
    logprobs: int | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """One entry a completion asked for: text, or token ids. Raise ApiError when both stand side by side."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        tokens = [item for item in self.prompt if isinstance(item, int)]
        if tokens and len(tokens) < len(self.prompt):
            raise ApiError(400, "prompt mixes token ids with other prompts", "prompt")
        return [tokens] if tokens else [item for item in self.prompt if not isinstance(item, int)]


class ContentPart(msgspec.Struct, frozen=True):
    type: str
    text: str | None = None


class ChatMessage(msgspec.Struct, frozen=True):
    role: str
    content: str | list[ContentPart] | None = None

    @property
    def text(self) -> str:
        """The content as text; raise ApiError for content of another kind."""
        if not isinstance(self.content, list):
            return self.content or ""
        for part in self.content:
            if part.type != "text":
                raise ApiError(400, f"content of type {part.type!r} is not supported: send text", "messages")
        return "".join(part.text or "" for part in self.content)


class ChatBody(SamplingFields, frozen=True, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    tools: list[Any] | None = None

    @property
    def token_limit(self) -> int | None:
        """Most tokens wanted, under either of the field's names."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens


def read_body(kind: type[T], body: bytes) -> T:
    """Decode a request; raise ApiError that names what is wrong."""
    if len(body) > MAX_BODY_BYTES:
        raise ApiError(413, f"the request is longer than {MAX_BODY_BYTES} bytes")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"malformed request: {' '.join(str(error).split())}") from None


def check(body: SamplingFields, limit: int | None) -> None:
    """Raise ApiError for values that no request may have."""
    if limit is not None and limit < 1:
        raise ApiError(400, f"max_tokens must be at least 1, not {limit}", "max_tokens")
    if body.temperature is not None and not 0 <= body.temperature <= 100:
        raise ApiError(400, f"temperature must be from 0 to 100, not {body.temperature}", "temperature")
    if body.top_p is not None and not 0 < body.top_p <= 1:
        raise ApiError(400, f"top_p must be over 0 and at most 1, not {body.top_p}", "top_p")
    if body.n is not None and not 1 <= body.n <= MAX_PROMPTS:
        raise ApiError(400, f"n must be from 1 to {MAX_PROMPTS}, not {body.n}", "n")
