"""One streamed completion from an OpenAI-compatible server, with the instant of each token."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec

from sessions.messages import RequestSpec

READ_TIMEOUT_S = 120.0
MAX_CONNECTIONS = 4096


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


class CompletionClient:
    """Asks one server for streamed completions, over connections that stay open."""

    def __init__(self, url: str, headers: dict[str, str], model: str) -> None:
        limits = httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS)
        self._client = httpx.AsyncClient(headers=headers, timeout=READ_TIMEOUT_S, limits=limits)
        self._model = model
        # Made once: what is done between a request being due and its sending counts as the server's time.
        self._url = httpx.URL(f"{url}/v1/completions")
        self._headers = httpx.Headers([*self._client.headers.raw, (b"content-type", b"application/json")])
        self._extensions = {"timeout": self._client.timeout.as_dict()}

    async def stream(self, spec: RequestSpec) -> AsyncIterator[Piece]:
        """Ask for a completion and yield its chunks as they arrive. Raise StreamError."""
        body = msgspec.json.encode(_body(self._model, spec))
        request = httpx.Request("POST", self._url, headers=self._headers, content=body, extensions=self._extensions)
        begun = False
        try:
            response = await self._client.send(request, stream=True)
            try:
                if not response.is_success:
                    text = (await response.aread()).decode(errors="replace")
                    raise StreamError(f"{response.status_code}: {' '.join(text.split())[:200]}", refused=True)
                async for line in response.aiter_lines():
                    piece = read_line(line, time.monotonic_ns())
                    if piece is not None:
                        begun = True
                        yield piece
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise StreamError(f"{type(error).__name__}: {error}", refused=not begun) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _body(model: str, spec: RequestSpec) -> dict[str, Any]:
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
    return body


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
