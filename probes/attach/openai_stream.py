"""One streamed completion from an OpenAI-compatible server, with the instant of each token."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec

from sessions.messages import RequestSpec


class Piece(msgspec.Struct, frozen=True):
    """A chunk that arrived at `t_ns`: its text, the tokens it stands for, and at the end the finish reason."""

    t_ns: int
    text: str
    tokens: int
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None


class StreamError(RuntimeError):
    """The server refused or broke off a request; one line. `refused`: it never began."""

    def __init__(self, text: str, refused: bool) -> None:
        super().__init__(text)
        self.refused = refused


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: dict[str, Any] | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(_Chunk)


async def stream_completion(client: httpx.AsyncClient, model: str, spec: RequestSpec) -> AsyncIterator[Piece]:
    """Ask for a completion and yield its chunks as they arrive. Raise StreamError."""
    body: dict[str, Any] = {
        "model": model,
        "prompt": spec.prompt,
        "max_tokens": spec.max_tokens,
        "temperature": spec.temperature,
        "top_p": spec.top_p,
        "seed": spec.seed,
        "ignore_eos": spec.ignore_eos,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if spec.stop:
        body["stop"] = spec.stop
    begun = False
    try:
        async with client.stream("POST", "/v1/completions", json=body) as response:
            if not response.is_success:
                text = (await response.aread()).decode(errors="replace")
                raise StreamError(f"{response.status_code}: {' '.join(text.split())[:200]}", refused=True)
            async for line in response.aiter_lines():
                piece = read_line(line, time.monotonic_ns())
                if piece is not None:
                    begun = True
                    yield piece
    except httpx.HTTPError as error:
        raise StreamError(f"{type(error).__name__}: {error}", refused=not begun) from None


def read_line(line: str, t_ns: int) -> Piece | None:
    """One line of server-sent events; None for what carries nothing. Raise StreamError for an error in the stream."""
    if not line.startswith("data:"):
        return None
    data = line[5:].strip()
    if data == "[DONE]":
        return None
    try:
        chunk = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise StreamError(f"the stream is malformed: {error}", refused=False) from None
    if chunk.error is not None:
        raise StreamError(str(chunk.error.get("message", chunk.error)), refused=False)
    usage = chunk.usage
    counts = (None, None) if usage is None else (usage.prompt_tokens, usage.completion_tokens)
    if not chunk.choices:
        return None if usage is None else Piece(t_ns, "", 0, None, *counts)
    choice = chunk.choices[0]
    text = choice.text if choice.text is not None else str((choice.delta or {}).get("content") or "")
    return Piece(t_ns, text, _tokens(choice, text), choice.finish_reason, *counts)


def _tokens(choice: _Choice, text: str) -> int:
    """Tokens that a chunk stands for: one, also when its text is still empty (half of a character). The chunk that only
    opens a chat's message stands for none."""
    if choice.token_ids is not None:
        return len(choice.token_ids)
    return 0 if choice.delta is not None and "role" in choice.delta and not text else 1
